//! Measures how fast 1 GiB of output passes from a process to a client that decodes it, and how much processor time
//! the server needs for that.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::{TestServer, cpu_time};

use crate::bare;
use crate::raw::{RawClient, is_notification, output_chunk};
use crate::table::{Goal, Measurement, Row};

const BYTES: u64 = 1 << 30;
/// A command that prints [`BYTES`] bytes.
const PRINT_GIBIBYTE: &[&str] = &["/usr/bin/head", "-c", "1073741824", "/dev/zero"];
const REPETITIONS: usize = 3;

pub(crate) async fn one_gibibyte() -> Result<Vec<Row>> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut bare, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..REPETITIONS {
        let (total, took) = bare::read_pipe(PRINT_GIBIBYTE)?;
        ensure!(total == BYTES, "the pipe gave {total} bytes");
        bare.push(took);
        let before = cpu_time(server.pid());
        client.send_start(&format!("big{turn}"), PRINT_GIBIBYTE, false).await?;
        ours.push(receive_gibibyte(&mut client).await?);
        cpu.push(cpu_time(server.pid()) - before);
    }
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let rate = |took: Duration| Measurement::BytesPerSecond(BYTES as f64 / took.as_secs_f64());
    Ok(vec![
        Row {
            figure: "1 GiB from `head -c` to the client, decoded",
            ours: rate(median(ours)),
            limit: Some(rate(median(bare))),
            goal: Goal::AtLeastTimes(0.45),
        },
        Row {
            figure: "server CPU for that",
            ours: Measurement::Seconds(median(cpu).as_secs_f64()),
            limit: None,
            goal: Goal::UpTo(Measurement::Seconds(1.3)),
        },
    ])
}

/// The same output from a sandboxed process. The limit is the rate without a sandbox.
pub(crate) async fn in_sandbox(sandbox: &str) -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for turn in 0..REPETITIONS {
        // Which of the two comes first alternates, because each leaves the processors and the memory of the server in another state.
        for is_boxed in if turn % 2 == 0 { [false, true] } else { [true, false] } {
            if is_boxed {
                let params = format!(
                    r#"{{"processId":"boxed{turn}","argv":["/usr/bin/head","-c","1073741824","/dev/zero"],"cwd":"file:///","env":{{}},"tty":false,"sandbox":{sandbox}}}"#
                );
                client.send("process/start", &params).await?;
                ours.push(receive_gibibyte(&mut client).await?);
            } else {
                client.send_start(&format!("plain{turn}"), PRINT_GIBIBYTE, false).await?;
                plain.push(receive_gibibyte(&mut client).await?);
            }
        }
    }
    let rate = |mut times: Vec<Duration>| {
        times.sort_unstable();
        Measurement::BytesPerSecond(BYTES as f64 / times[times.len() / 2].as_secs_f64())
    };
    Ok(Row {
        figure: "1 GiB from a sandboxed process, compared with no sandbox",
        ours: rate(ours),
        limit: Some(rate(plain)),
        goal: Goal::AtLeastTimes(0.95),
    })
}

/// Receives and decodes the output of a process that was just started, to its end.
async fn receive_gibibyte(client: &mut RawClient) -> Result<Duration> {
    let start = Instant::now();
    let mut total = 0;
    let mut decoded = Vec::new();
    loop {
        let message = client.next().await?;
        if is_notification(&message, "process/output") {
            let text = output_chunk(&message).unwrap_or_default();
            total += protocol::decode_base64_into(text, &mut decoded)? as u64;
        } else if is_notification(&message, "process/closed") {
            ensure!(total == BYTES, "{total} bytes arrived");
            return Ok(start.elapsed());
        }
    }
}
