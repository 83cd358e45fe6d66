//! Measures the time from sending many `process/terminate` requests at once until the last of them is answered.

use std::time::{Duration, Instant};

use anyhow::Result;
use testkit::TestServer;

use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Row};

const FEW: usize = 60;
const MANY: usize = 600;
const ROUNDS: usize = 5;

/// Compares 600 requests with 60: ten times as many should take about ten times as long.
pub(crate) async fn many_at_once() -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        few.push(terminate(&mut client, &format!("few{round}"), FEW).await?);
        many.push(terminate(&mut client, &format!("many{round}"), MANY).await?);
    }
    Ok(Row {
        figure: "600 terminates at once, compared with 60",
        ours: p50(many),
        limit: Some(p50(few)),
        goal: Goal::UpToTimes(12.0),
    })
}

/// Starts `count` processes. Then measures the time until all requests to terminate them are answered.
async fn terminate(client: &mut RawClient, name: &str, count: usize) -> Result<Duration> {
    for number in 0..count {
        client.send_start(&format!("{name}-{number}"), &["/usr/bin/sleep", "1000"], false).await?;
        client.next().await?;
    }
    let start = Instant::now();
    for number in 0..count {
        client.send("process/terminate", &format!(r#"{{"processId":"{name}-{number}"}}"#)).await?;
    }
    let mut answered = 0;
    while answered < count {
        let message = client.next().await?;
        if !is_notification(&message, "process/") {
            anyhow::ensure!(!message.starts_with(br#"{"error""#), "{}", String::from_utf8_lossy(&message));
            answered += 1;
        }
    }
    Ok(start.elapsed())
}
