//! Limits of `--help-limits`: each test reaches a limit and checks what the server does then. `listed` names all
//! limits. Some of them are tested together with the feature that they limit, for example those of HTTP requests in
//! `tests/http`.
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
