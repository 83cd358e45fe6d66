//! Measures the time from sending one byte to a terminal until the echo of the byte is received.

use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;
use testkit::TestServer;

use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Measurement, Row};

const ROUNDS: usize = 10;
const BYTES_PER_ROUND: usize = 100;

pub(crate) async fn one_byte() -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    client.send_start("echo", &["/usr/bin/cat"], true).await?;
    client.next().await?;
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.extend(without_server()?);
        for _ in 0..BYTES_PER_ROUND {
            ours.push(through_server(&mut client).await?);
        }
        // Each round gets a line of its own, because the kernel buffers at most 4,095 bytes of an unfinished line.
        end_line(&mut client).await?;
    }
    Ok(Row {
        figure: "PTY echo of one byte, p50",
        ours: p50(ours),
        limit: Some(p50(bare)),
        goal: Goal::AtMostLimitPlus(Measurement::Seconds(0.000_15)),
    })
}

/// The time until the echo of one byte is received through the server.
async fn through_server(client: &mut RawClient) -> Result<Duration> {
    let start = Instant::now();
    client.send("process/write", r#"{"processId":"echo","chunk":"eA=="}"#).await?;
    let (mut echoed, mut took) = (false, Duration::ZERO);
    let mut answered = false;
    while !echoed || !answered {
        let message = client.next().await?;
        if is_notification(&message, "process/output") {
            echoed = true;
            took = start.elapsed();
        } else {
            answered = true;
        }
    }
    Ok(took)
}

async fn end_line(client: &mut RawClient) -> Result<()> {
    client.send("process/write", r#"{"processId":"echo","chunk":"Cg=="}"#).await?;
    // The terminal echoes the newline as CR LF, and `cat` prints the line, which also ends with CR LF.
    let mut bytes = 0;
    let mut answered = false;
    while bytes < BYTES_PER_ROUND + 4 || !answered {
        let message = client.next().await?;
        match crate::raw::output_chunk(&message) {
            Some(text) => bytes += protocol::decode_base64(text)?.len(),
            None => answered = true,
        }
    }
    Ok(())
}

/// The times of [`BYTES_PER_ROUND`] echoes of one byte, on a terminal of this process, without a server.
fn without_server() -> Result<Vec<Duration>> {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    rustix::pty::grantpt(&master)?;
    rustix::pty::unlockpt(&master)?;
    let name = rustix::pty::ptsname(&master, Vec::new())?;
    let _slave = rustix::fs::open(&name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
    let mut samples = Vec::new();
    for _ in 0..BYTES_PER_ROUND {
        let start = Instant::now();
        rustix::io::write(&master, b"x")?;
        rustix::io::read(&master, &mut [0u8; 16])?;
        samples.push(start.elapsed());
    }
    Ok(samples)
}
