//! A thousand cuts at random positions, while processes write as fast as they can. Another test checks that
//! a client recovers soon.

use std::time::{Duration, Instant};

use client::{
    Backoff, ConnectionState, ExecProcess, ExecProcessEvent, ExecServerClient, ExecServerClientConnectOptions,
    UrlConnector,
};
use testkit::{CuttingProxy, TestServer};

use crate::support::{connect_to, sh};

const CUTS: u64 = 1000;
/// Seed of the random positions. The same seed gives the same positions.
const SEED: u64 = 7;

/// Reads the output of `seq 1 LAST` to its end and compares each byte: no byte is missing, repeated or misplaced. The
/// process must exit with 0.
async fn expect_numbers(process: ExecProcess, last: u64) {
    let mut expected = (1..=last).flat_map(|number| format!("{number}\n").into_bytes());
    let mut events = process.events();
    let (mut seq, mut exit) = (0, None);
    while let Some(event) = events.next().await {
        seq += 1;
        match event {
            ExecProcessEvent::Output(output) => {
                assert_eq!(output.seq, seq);
                assert!(
                    output.chunk.iter().all(|byte| expected.next() == Some(*byte)),
                    "wrong output in event {seq}"
                );
            }
            ExecProcessEvent::Exited { seq: at, exit_code, .. } => {
                assert_eq!(at, seq);
                exit = Some(exit_code);
            }
            ExecProcessEvent::Closed { seq: at } => assert_eq!(at, seq),
            ExecProcessEvent::Failed(text) => panic!("{text}"),
        }
    }
    assert_eq!((expected.next(), exit), (None, Some(0)));
}

/// Starts `processes` processes that each print the numbers from 1 to `last`, and checks their output. A thousand
/// connections are cut, each after a random number of bytes, at most `max_bytes`.
async fn run_through_cuts(processes: u64, last: u64, max_bytes: u64) {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let options = ExecServerClientConnectOptions {
        // A thousand waits of the default length would take minutes.
        backoff: Backoff { first: Duration::from_millis(1), longest: Duration::from_millis(5) },
        // Hundreds of cuts may hit one recovery.
        recovery_budget: Duration::from_secs(150),
        ..Default::default()
    };
    let connector = UrlConnector::new(proxy.url(), Default::default());
    let client = ExecServerClient::connect(connector, options).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let go = directory.path().join("go");
    let mut readers = Vec::new();
    for number in 0..processes {
        let script = format!("until [ -e {} ]; do sleep 0.05; done; exec seq 1 {last}", go.display());
        let process = client.start(sh(&number.to_string(), &script)).await.unwrap();
        readers.push(tokio::spawn(expect_numbers(process, last)));
    }
    proxy.cut_at_random(CUTS, max_bytes, SEED);
    // The random cuts hit only new connections, so the present connection is cut here.
    proxy.cut();
    std::fs::write(&go, "").unwrap();
    for reader in readers {
        reader.await.unwrap();
    }
    let cuts = proxy.cuts_made();
    assert!(cuts >= CUTS, "only {cuts} cuts");
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_survives_a_thousand_cuts() {
    run_through_cuts(1, 5_000_000, 700_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_processes_survive_a_thousand_cuts() {
    run_through_cuts(200, 100_000, 1_000_000).await;
}

/// The limit of 5 seconds is generous, so that the test passes even on a loaded machine. `cargo xtask bench` measures
/// how long a recovery takes.
#[tokio::test]
async fn a_client_recovers_soon_after_its_server_can_be_reached_again() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect_to(&proxy.url()).await;
    let mut state = client.connection_state();
    for _ in 0..20 {
        proxy.refuse(true);
        proxy.cut();
        state.wait_for(|state| matches!(state, ConnectionState::Recovering(_))).await.unwrap();
        proxy.refuse(false);
        let reachable = Instant::now();
        state.wait_for(|state| *state == ConnectionState::Connected).await.unwrap();
        assert!(reachable.elapsed() < Duration::from_secs(5));
    }
}
