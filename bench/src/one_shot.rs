//! One-shots of `/usr/bin/true`: how long one takes, and how many run in a second. A one-shot is the start of a process and the wait for
//! its end.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::{TestServer, resident_bytes};

use crate::bare::{self, TRUE};
use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Measurement, Row};

const ROUNDS: usize = 8;
const PER_ROUND: usize = 60;
const MANY: usize = 2000;
const IN_FLIGHT: usize = 64;
/// Processes that run beside the measured one-shots.
const CROWD: usize = 1000;

/// Output that a large server keeps in memory.
const BALLAST_BYTES: usize = 512 << 20;
const BALLAST_PROCESSES: usize = 72;

async fn one_shot(client: &mut RawClient, number: &mut usize) -> Result<Duration> {
    *number += 1;
    let start = Instant::now();
    client.start(&format!("p{number}"), &[TRUE], false).await?;
    client.closed().await?;
    Ok(start.elapsed())
}

/// One-shots one at a time, on a small and on a large server. They take turns, so that noise affects all equally.
pub(crate) async fn latency() -> Result<Vec<Row>> {
    let small = TestServer::start().await;
    let large = large_server().await?;
    let mut to_small = RawClient::connect(small.url()).await?;
    let mut to_large = RawClient::connect(large.url()).await?;
    let (mut bare, mut ours, mut ours_large) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        for _ in 0..PER_ROUND {
            bare.push(bare::spawn_and_wait()?);
        }
        for _ in 0..PER_ROUND {
            ours.push(one_shot(&mut to_small, &mut number).await?);
        }
        for _ in 0..PER_ROUND {
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
            figure: "the same with a 512 MiB server, beside the small server",
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
    for number in 0..BALLAST_PROCESSES {
        client.start(&format!("ballast{number}"), &["/usr/bin/head", "-c", "8000000", "/dev/zero"], false).await?;
        client.closed().await?;
    }
    let resident = resident_bytes(server.pid());
    anyhow::ensure!(resident >= BALLAST_BYTES, "the large server has only {resident} bytes");
    // The connection stays open, so that the session and its retained output stay.
    std::mem::forget(client);
    Ok(server)
}

/// Many one-shots, with [`IN_FLIGHT`] of them at once.
pub(crate) async fn throughput() -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut bare) = (Duration::ZERO, Duration::ZERO);
    let mut number = 0;
    const REPETITIONS: usize = 4;
    for _ in 0..REPETITIONS {
        bare += bare::two_threads(MANY / REPETITIONS)?;
        let start = Instant::now();
        let (mut started, mut closed) = (0, 0);
        while closed < MANY / REPETITIONS {
            while started < MANY / REPETITIONS && started - closed < IN_FLIGHT {
                number += 1;
                started += 1;
                client.start(&format!("p{number}"), &[TRUE], false).await?;
            }
            let message = client.next().await?;
            closed += usize::from(is_notification(&message, "process/closed"));
        }
        ours += start.elapsed();
    }
    let rate = |took: Duration| Measurement::PerSecond(MANY as f64 / took.as_secs_f64());
    Ok(Row {
        figure: "2,000 one-shots, 64 in flight",
        ours: rate(ours),
        limit: Some(rate(bare)),
        goal: Goal::AtLeastTimes(0.6),
    })
}

/// One-shots one at a time, while [`CROWD`] other processes run.
pub(crate) async fn in_a_crowd() -> Result<Row> {
    let empty = TestServer::start().await;
    let crowded = TestServer::start().await;
    let mut to_crowded = RawClient::connect(crowded.url()).await?;
    for number in 0..CROWD {
        to_crowded.start(&format!("live{number}"), &["/usr/bin/sleep", "1000"], false).await?;
        to_crowded.next().await?;
    }
    let mut to_empty = RawClient::connect(empty.url()).await?;
    let (mut alone, mut ours) = (Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..ROUNDS {
        for _ in 0..PER_ROUND {
            alone.push(one_shot(&mut to_empty, &mut number).await?);
        }
        for _ in 0..PER_ROUND {
            ours.push(one_shot(&mut to_crowded, &mut number).await?);
        }
    }
    Ok(Row {
        figure: "one-shot p50 with 1,000 live processes, beside none",
        ours: p50(ours),
        limit: Some(p50(alone)),
        goal: Goal::UpToTimes(1.2),
    })
}
