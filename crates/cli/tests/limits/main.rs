//! A test for every limit of `--help-limits`: the limit is reached, and the error names it.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod files;
mod handshakes;
mod listed;
mod messages;
mod numbers;
mod readers;
mod retention;
mod times;

use testkit::{TestServer, http_get};

/// The value of a metric. `name` includes the labels if the metric has labels. 0 if there is no such metric.
async fn metric(server: &TestServer, name: &str) -> u64 {
    let metrics = http_get(server.address(), "/metrics", &[]).await.body;
    let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or(0)
}
