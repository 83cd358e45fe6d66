//! Measures how long a one-shot of `/usr/bin/true` takes, and how many run in a second. A one-shot is the start of a
//! process and the wait for its end.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::{TestServer, resident_bytes};

use crate::bare::{self, TRUE};
use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Measurement, Row};

const ROUNDS: usize = 8;
const ONE_SHOTS_PER_ROUND: usize = 60;
/// One-shots of which [`throughput`] measures the rate.
const THROUGHPUT_ONE_SHOTS: usize = 2000;
/// Largest number of these one-shots at the same time.
const IN_FLIGHT: usize = 64;
/// Processes that run at the same time as the measured one-shots.
const OTHER_PROCESSES: usize = 1000;

/// Least resident memory of the large server, a server that retains much output.
const LARGE_SERVER_BYTES: usize = 512 << 20;
/// Processes whose output the large server retains, 8 MB each.
const RETAINED_PROCESSES: usize = 72;

/// Measures one one-shot. `number` counts the one-shots, so that each process has an id of its own.
async fn one_shot(client: &mut RawClient, number: &mut usize) -> Result<Duration> {
    *number += 1;
    let start = Instant::now();
    client.send_start(&format!("p{number}"), &[TRUE], false).await?;
    client.wait_for_process_closed().await?;
    Ok(start.elapsed())
}

/// Measures one-shots one at a time in three ways: without a server, on a small server and on a large server. The
/// three take turns, so that noise affects all equally.
pub(crate) async fn latency() -> Result<Vec<Row>> {
    let small = TestServer::start().await;
    let large = large_server().await?;
    let mut to_small = RawClient::connect(small.url()).await?;
    let mut to_large = RawClient::connect(large.url()).await?;
    let (mut bare, mut ours, mut ours_large) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        for _ in 0..ONE_SHOTS_PER_ROUND {
            bare.push(bare::spawn_and_wait()?);
        }
        for _ in 0..ONE_SHOTS_PER_ROUND {
            ours.push(one_shot(&mut to_small, &mut number).await?);
        }
        for _ in 0..ONE_SHOTS_PER_ROUND {
            ours_large.push(one_shot(&mut to_large, &mut number).await?);
        }
    }
    let ours = p50(ours);
    Ok(vec![
        Row {
            figure: "one-shot `/usr/bin/true`, start to closed, p50",
            ours,
            limit: Some(p50(bare)),
            goal: Goal::UpToTimes(1.4),
        },
        Row {
            figure: "the same with a 512 MiB server, compared with the small server",
            ours: p50(ours_large),
            limit: Some(ours),
            goal: Goal::UpToTimes(1.1),
        },
    ])
}

async fn large_server() -> Result<TestServer> {
    let args = ["--retain-bytes", "8MiB", "--retain-total-bytes", "1GiB", "--process-retention", "1h"];
    let server = TestServer::with_args(&args).await;
    let mut client = RawClient::connect(server.url()).await?;
    for number in 0..RETAINED_PROCESSES {
        client
            .send_start(&format!("retained{number}"), &["/usr/bin/head", "-c", "8000000", "/dev/zero"], false)
            .await?;
        client.wait_for_process_closed().await?;
    }
    let resident = resident_bytes(server.pid());
    anyhow::ensure!(resident >= LARGE_SERVER_BYTES, "the large server has only {resident} bytes");
    // The connection stays open, so that the session and its retained output stay.
    std::mem::forget(client);
    Ok(server)
}

/// Measures the rate of one-shots on a server, up to [`IN_FLIGHT`] of them at once. The limit is their rate on two
/// threads without a server.
pub(crate) async fn throughput() -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    let mut number = 0;
    const REPETITIONS: usize = 4;
    for _ in 0..REPETITIONS {
        bare += bare::spawn_on_two_threads(THROUGHPUT_ONE_SHOTS / REPETITIONS)?;
        let start = Instant::now();
        let (mut started, mut closed) = (0, 0);
        while closed < THROUGHPUT_ONE_SHOTS / REPETITIONS {
            while started < THROUGHPUT_ONE_SHOTS / REPETITIONS && started - closed < IN_FLIGHT {
                number += 1;
                started += 1;
                client.send_start(&format!("p{number}"), &[TRUE], false).await?;
            }
            let message = client.next().await?;
            closed += usize::from(is_notification(&message, "process/closed"));
        }
        ours += start.elapsed();
    }
    let rate = |took: Duration| Measurement::PerSecond(THROUGHPUT_ONE_SHOTS as f64 / took.as_secs_f64());
    Ok(Row {
        figure: "2,000 one-shots, 64 in flight",
        ours: rate(ours),
        limit: Some(rate(bare)),
        goal: Goal::AtLeastTimes(0.6),
    })
}

/// Measures one-shots one at a time, while [`OTHER_PROCESSES`] run on the same server. The limit is the time on a
/// server without other processes.
pub(crate) async fn while_many_processes_run() -> Result<Row> {
    let empty = TestServer::start().await;
    let crowded = TestServer::start().await;
    let mut to_crowded = RawClient::connect(crowded.url()).await?;
    for number in 0..OTHER_PROCESSES {
        to_crowded.send_start(&format!("live{number}"), &["/usr/bin/sleep", "1000"], false).await?;
        to_crowded.next().await?;
    }
    let mut to_empty = RawClient::connect(empty.url()).await?;
    let (mut alone, mut ours) = (Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        for _ in 0..ONE_SHOTS_PER_ROUND {
            alone.push(one_shot(&mut to_empty, &mut number).await?);
        }
        for _ in 0..ONE_SHOTS_PER_ROUND {
            ours.push(one_shot(&mut to_crowded, &mut number).await?);
        }
    }
    Ok(Row {
        figure: "one-shot p50 with 1,000 live processes, compared with none",
        ours: p50(ours),
        limit: Some(p50(alone)),
        goal: Goal::UpToTimes(1.2),
    })
}
