//! Measures the client library, which programs embed: how much longer a one-shot takes than with [`RawClient`], which
//! does as little as possible, and how soon the library recovers from a lost or silent connection. Also measures the
//! throughput of `exec-server run`, which uses the library. A one-shot is the start of a short process and the wait
//! for its end.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use client::{ConnectionState, ExecServerClient, RemoteExecServerConnectArgs, StartParams};
use testkit::{CuttingProxy, TestServer, binary};

use crate::bare::{self, TRUE};
use crate::raw::RawClient;
use crate::sample::{p50, p95};
use crate::table::{Goal, Measurement, Row};

const ROUNDS: usize = 8;
const ONE_SHOTS_PER_ROUND: usize = 60;
const RECOVERIES: usize = 200;
/// Measurements of a silent connection. Each takes at least the silence timeout of the client, 8 seconds.
const SILENCES: usize = 2;
const BYTES: u64 = 1 << 30;
/// A command that prints [`BYTES`] bytes.
const PRINT_GIBIBYTE: &[&str] = &["/usr/bin/head", "-c", "1073741824", "/dev/zero"];
const REPETITIONS: usize = 3;

async fn connect(url: &str) -> Result<ExecServerClient> {
    Ok(ExecServerClient::connect_websocket(RemoteExecServerConnectArgs::new(url, "bench")).await?)
}

/// Measures one-shots over an open connection, one at a time. [`RawClient`] and the client library take turns, so
/// that noise affects both equally.
pub(crate) async fn one_shot() -> Result<Row> {
    let server = TestServer::start().await;
    let mut raw = RawClient::connect(server.url()).await?;
    let client = connect(server.url()).await?;
    let (mut raw_times, mut ours) = (Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        for _ in 0..ONE_SHOTS_PER_ROUND {
            number += 1;
            let start = Instant::now();
            raw.send_start(&format!("p{number}"), &[TRUE], false).await?;
            raw.wait_for_process_closed().await?;
            raw_times.push(start.elapsed());
        }
        for _ in 0..ONE_SHOTS_PER_ROUND {
            number += 1;
            let mut params = StartParams::new(format!("p{number}"), [TRUE], "file:///".parse()?);
            // No environment variables, as in the requests of `RawClient`.
            params.env_policy = None;
            let start = Instant::now();
            let output = client.start(params).await?.wait_with_output().await?;
            ours.push(start.elapsed());
            ensure!(output.status.success());
        }
    }
    Ok(Row {
        figure: "one-shot through `ExecServerClient`, p50, compared with the raw protocol",
        ours: p50(ours),
        limit: Some(p50(raw_times)),
        goal: Goal::UpToTimes(1.15),
    })
}

/// Measures the time from the moment at which a connection goes silent, without being closed, until an event has come
/// over a new connection. Client and server have their default settings. The result is the longest of [`SILENCES`]
/// measurements.
pub(crate) async fn silence() -> Result<Row> {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect(&proxy.url()).await?;
    let argv = ["/bin/sh", "-c", "while echo tick; do sleep 0.05; done"];
    let process = client.start(StartParams::new("p", argv, "file:///".parse()?)).await?;
    let mut events = process.events();
    let mut state = client.connection_state();
    let mut longest = Duration::ZERO;
    for _ in 0..SILENCES {
        ensure!(events.next().await.is_some());
        // The open connection carries no more bytes. New connections do.
        proxy.freeze();
        proxy.thaw_new();
        let silent = Instant::now();
        let is_lost = |state: &ConnectionState| matches!(state, ConnectionState::Recovering(_));
        // Events from before the silence are taken here, so that the next event is one from the new connection.
        loop {
            tokio::select! {
                event = events.next() => ensure!(event.is_some()),
                lost = state.wait_for(is_lost) => break drop(lost?),
            }
        }
        state.wait_for(|state| *state == ConnectionState::Connected).await?;
        ensure!(events.next().await.is_some());
        longest = longest.max(silent.elapsed());
    }
    Ok(Row {
        figure: "a connection that goes silent, until events flow over a new one",
        ours: Measurement::Seconds(longest.as_secs_f64()),
        limit: None,
        goal: Goal::UpTo(Measurement::Seconds(12.0)),
    })
}

/// Measures the time from the moment at which the server can be reached again until the state of the client is
/// `Connected`. The client enters that state after it has read the missed events of its processes, here ten.
pub(crate) async fn recovery() -> Result<Row> {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect(&proxy.url()).await?;
    let mut processes = Vec::new();
    for number in 0..10 {
        let argv = ["/usr/bin/sleep", "1000"];
        processes.push(client.start(StartParams::new(format!("p{number}"), argv, "file:///".parse()?)).await?);
    }
    let mut state = client.connection_state();
    let mut times = Vec::new();
    for _ in 0..RECOVERIES {
        proxy.refuse(true);
        proxy.cut();
        state.wait_for(|state| matches!(state, ConnectionState::Recovering(_))).await?;
        // Meanwhile the client tries to reconnect, and its waits between attempts grow to their maximum.
        tokio::time::sleep(Duration::from_millis(250)).await;
        proxy.refuse(false);
        let reachable = Instant::now();
        state.wait_for(|state| *state == ConnectionState::Connected).await?;
        times.push(reachable.elapsed());
    }
    Ok(Row {
        figure: "recovery after the server can be reached again, p95",
        ours: p95(times),
        limit: None,
        goal: Goal::UpTo(Measurement::Seconds(0.150)),
    })
}

/// Measures the throughput of the whole command `exec-server run`, which starts a server of its own, from the start
/// of the command to its exit.
pub(crate) fn gibibyte_through_run() -> Result<Row> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let (total, took) = bare::read_pipe(PRINT_GIBIBYTE)?;
        ensure!(total == BYTES, "the pipe gave {total} bytes");
        bare.push(took);
        let start = Instant::now();
        let status = Command::new(binary())
            .args(["run", "--"])
            .args(PRINT_GIBIBYTE)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        ours.push(start.elapsed());
        ensure!(status.success(), "{status}");
    }
    let rate = |times: Vec<Duration>| match p50(times) {
        Measurement::Seconds(seconds) => Measurement::BytesPerSecond(BYTES as f64 / seconds),
        other => other,
    };
    Ok(Row {
        figure: "1 GiB through `exec-server run > /dev/null`",
        ours: rate(ours),
        limit: Some(rate(bare)),
        goal: Goal::AtLeastTimes(0.4),
    })
}
