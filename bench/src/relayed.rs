//! Measures remote mode on loopback: an executor and clients that reach it through a relay, compared with clients that
//! connect to the same executor directly. Everything is encrypted between the two ends; the relay only passes frames on.
//!
//! The relay is the one that the tests use. Measurements of speed run it in a process of its own ([`PeerProcess`]).
//! Measurements that ask the relay what happened run it in this process.

mod relay_server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use client::{
    ExecProcessEvent, ExecServerClient, ExecServerClientConnectOptions, RelayConnector, RemoteCredential,
    RemoteExecServerConnectArgs, RemoteLocation, StartParams,
};
use remote::{DirectPolicy, RelayIdentity};
use tempfile::TempDir;
use testkit::service::{Leg, Operation};
use testkit::{CuttingProxy, TestServer, TestService, cpu_time, resident_bytes};

use crate::bare::TRUE;
use crate::peer::PeerProcess;
use crate::sample::{p50, p95};
use crate::table::{Goal, Measurement, Row};
pub(crate) use relay_server::{ARGUMENT as RELAY_ARGUMENT, serve as serve_relay};

const ENVIRONMENT: &str = "bench";
const ROUNDS: usize = 8;
const ONE_SHOTS_PER_ROUND: usize = 60;
const REPETITIONS: usize = 3;
const COLD_CONNECTS: usize = 100;
const RECOVERIES: usize = 200;
/// Idle streams over which the growth of the executor's memory is averaged. An executor serves 128 at once.
const STREAMS: usize = 100;
const BYTES: u64 = 1 << 30;
/// A command that prints [`BYTES`] bytes.
const PRINT_GIBIBYTE: [&str; 4] = ["/usr/bin/head", "-c", "1073741824", "/dev/zero"];

/// An executor that also listens, so that the same server can be reached through the relay and directly.
struct BenchExecutor {
    server: TestServer,
    service: String,
    /// Holds the keys of the executor.
    _state: TempDir,
}

impl BenchExecutor {
    async fn start(service: &str) -> Result<Self> {
        let state = tempfile::tempdir()?;
        let args = ["--listen", "ws://127.0.0.1:0", "--remote", service, "--environment-id", ENVIRONMENT];
        let server = TestServer::start_with(&args, |command| {
            command.env("EXEC_SERVER_API_KEY", TestService::TOKEN).env("XDG_STATE_HOME", state.path())
        })
        .await;
        Ok(Self { server, service: service.to_owned(), _state: state })
    }

    fn connector(&self) -> Result<RelayConnector> {
        let location = RemoteLocation {
            service: self.service.clone(),
            environment_id: ENVIRONMENT.to_owned(),
            pinned_key: None,
            ca_file: None,
            credential: RemoteCredential::Token { token: TestService::TOKEN.to_owned(), account: None },
        };
        let identity = Arc::new(RelayIdentity::generate()?);
        // With a direct path the connection would leave the relay, because the executor also listens.
        Ok(RelayConnector::to_environment(&location, identity, Vec::new(), DirectPolicy::Off)?)
    }

    /// A client whose connection goes through the relay. The executor may still be dialling the relay.
    async fn through_relay(&self) -> Result<ExecServerClient> {
        Ok(ExecServerClient::connect(self.connector()?, ExecServerClientConnectOptions::default()).await?)
    }

    async fn directly(&self) -> Result<ExecServerClient> {
        let args = RemoteExecServerConnectArgs::new(self.server.url(), "bench");
        Ok(ExecServerClient::connect_websocket(args).await?)
    }
}

pub(crate) async fn figures() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    {
        let relay = PeerProcess::start(RELAY_ARGUMENT)?;
        let executor = BenchExecutor::start(&relay.url).await?;
        rows.push(one_shot(&executor).await?);
        rows.extend(one_gibibyte(&executor, &relay).await?);
    }
    rows.push(cold_connect().await?);
    rows.push(recovery().await?);
    rows.push(memory_per_stream().await?);
    Ok(rows)
}

fn start_params(id: String, argv: &[&str]) -> Result<StartParams> {
    let mut params = StartParams::new(id, argv.iter().copied(), "file:///".parse()?);
    params.env_policy = None;
    Ok(params)
}

/// Measures one-shots one at a time. Relayed and direct rounds take turns, so that noise affects both equally.
async fn one_shot(executor: &BenchExecutor) -> Result<Row> {
    let (relayed, direct) = (executor.through_relay().await?, executor.directly().await?);
    let (mut relayed_times, mut direct_times) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for (client, times) in [(&relayed, &mut relayed_times), (&direct, &mut direct_times)] {
            for number in 0..ONE_SHOTS_PER_ROUND {
                let params = start_params(format!("p{round}-{number}"), &[TRUE])?;
                let start = Instant::now();
                let output = client.start(params).await?.wait_with_output().await?;
                times.push(start.elapsed());
                ensure!(output.status.success());
            }
        }
    }
    Ok(Row {
        figure: "one-shot through a relay, p50, compared with a direct connection",
        ours: p50(relayed_times),
        limit: Some(p50(direct_times)),
        goal: Goal::AtMostLimitPlus(Measurement::Seconds(0.000_5)),
    })
}

async fn one_gibibyte(executor: &BenchExecutor, relay: &PeerProcess) -> Result<Vec<Row>> {
    let (relayed, direct) = (executor.through_relay().await?, executor.directly().await?);
    let (mut relayed_times, mut direct_times, mut relay_cpu) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..REPETITIONS {
        direct_times.push(receive_gibibyte(&direct, turn).await?);
        let before = cpu_time(relay.pid());
        relayed_times.push(receive_gibibyte(&relayed, turn).await?);
        relay_cpu.push(cpu_time(relay.pid()) - before);
    }
    let rate = |times: Vec<Duration>| match p50(times) {
        Measurement::Seconds(seconds) => Measurement::BytesPerSecond(BYTES as f64 / seconds),
        other => other,
    };
    Ok(vec![
        Row {
            figure: "1 GiB of output through a relay, compared with a direct connection",
            ours: rate(relayed_times),
            limit: Some(rate(direct_times)),
            goal: Goal::AtLeastTimes(0.5),
        },
        Row { figure: "processor time of the relay for that", ours: p50(relay_cpu), limit: None, goal: Goal::Unset },
    ])
}

async fn receive_gibibyte(client: &ExecServerClient, turn: usize) -> Result<Duration> {
    let start = Instant::now();
    let process = client.start(start_params(format!("big{turn}"), &PRINT_GIBIBYTE)?).await?;
    let mut events = process.events();
    let mut total = 0;
    while let Some(event) = events.next().await {
        match event {
            ExecProcessEvent::Output(output) => total += output.chunk.len() as u64,
            ExecProcessEvent::Failed(reason) => anyhow::bail!(reason),
            _ => {}
        }
    }
    ensure!(total == BYTES, "{total} bytes arrived");
    Ok(start.elapsed())
}

/// Measures all steps of a new connection: a new connection to the registry for the bundle, the socket to the relay,
/// the handshake, during which the executor asks the registry, and `initialize`.
async fn cold_connect() -> Result<Row> {
    let service = TestService::start().await;
    let executor = BenchExecutor::start(&service.url()).await?;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    let mut times = Vec::new();
    for _ in 0..COLD_CONNECTS {
        // Generating keys is not measured, because the command-line program reads its keys from a file.
        let connector = executor.connector()?;
        let start = Instant::now();
        let client = ExecServerClient::connect(connector, ExecServerClientConnectOptions::default()).await?;
        times.push(start.elapsed());
        client.close().await;
    }
    Ok(Row {
        figure: "cold connect through a relay: bundle, dial, handshake, `initialize`, p50",
        ours: p50(times),
        limit: None,
        goal: Goal::UpTo(Measurement::Seconds(0.010)),
    })
}

/// Measures the time from the moment at which the relay can be reached again until the answer to a request that the
/// client sent while it could not be reached. The stream is resumed, so there is no further call to the registry and no
/// handshake.
async fn recovery() -> Result<Row> {
    let service = TestService::start().await;
    let proxy = CuttingProxy::start(service.address()).await;
    service.route_through(Leg::Harness, proxy.url().split_once("://").context("a URL without a scheme")?.1);
    let executor = BenchExecutor::start(&service.url()).await?;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    let client = executor.through_relay().await?;
    let calls = |service: &TestService| service.count(Operation::Connect) + service.count(Operation::Validate);
    let calls_before = calls(&service);
    let mut times = Vec::new();
    for _ in 0..RECOVERIES {
        client.environment_info().await?;
        proxy.refuse(true);
        proxy.cut();
        let answered = async {
            client.environment_info().await?;
            anyhow::Ok(Instant::now())
        };
        let reachable = async {
            // Meanwhile the client dials again and again, and its waits grow to their maximum.
            tokio::time::sleep(Duration::from_millis(250)).await;
            proxy.refuse(false);
            Instant::now()
        };
        let (answered, reachable) = tokio::join!(answered, reachable);
        times.push(answered?.duration_since(reachable));
    }
    ensure!(calls(&service) == calls_before, "a stream was replaced instead of resumed");
    Ok(Row {
        figure: "a stream is resumed after the relay can be reached again, without a handshake, p95",
        ours: p95(times),
        limit: None,
        goal: Goal::UpTo(Measurement::Seconds(0.100)),
    })
}

async fn memory_per_stream() -> Result<Row> {
    let service = TestService::start().await;
    let executor = BenchExecutor::start(&service.url()).await?;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    // Memory that the first streams allocate and later ones share does not count.
    let mut clients = Vec::new();
    for _ in 0..STREAMS / 10 {
        clients.push(executor.through_relay().await?);
    }
    let before = resident_bytes(executor.server.pid());
    for _ in 0..STREAMS {
        clients.push(executor.through_relay().await?);
    }
    let per_stream = resident_bytes(executor.server.pid()).saturating_sub(before) / STREAMS;
    Ok(Row {
        figure: "memory of the executor per idle stream, its session included",
        ours: Measurement::Bytes(per_stream as f64),
        limit: None,
        goal: Goal::UpTo(Measurement::Bytes(f64::from(24 << 10))),
    })
}
