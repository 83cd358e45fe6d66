//! The log lines about an executor and its service. Their number is limited, because many attempts fail during an
//! outage, and anybody who can reach the relay can cause refusals.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use session::LogRateLimit;

use crate::executor::ExecutorEvent;

/// At most 5 log lines in a minute about failed attempts to reach the service, and as many about refused harnesses.
const LINES: LogRateLimit = LogRateLimit::new(5, Duration::from_secs(60));

/// Writes the log lines of one executor.
#[derive(Debug)]
pub struct ExecutorLog {
    service: Mutex<LogRateLimit>,
    refusals: Mutex<LogRateLimit>,
}

impl Default for ExecutorLog {
    fn default() -> Self {
        Self { service: Mutex::new(LINES), refusals: Mutex::new(LINES) }
    }
}

impl ExecutorLog {
    /// Writes a line about the event, unless the limit for its kind is reached. Most successes get no line.
    pub fn note(&self, event: &ExecutorEvent<'_>) {
        match event {
            ExecutorEvent::Registered { failure: Some(error), .. } if may_log(&self.service) => {
                tracing::warn!("cannot register as an executor: {error}");
            }
            ExecutorEvent::Dialled { failure: Some(error), .. } if may_log(&self.service) => {
                tracing::warn!("{error}; trying again");
            }
            ExecutorEvent::Reconnects(reason) => {
                tracing::info!(reason, "the connection to the relay is made again");
            }
            ExecutorEvent::HarnessRefused { reason } if may_log(&self.refusals) => {
                tracing::warn!(reason, "a harness was refused");
            }
            _ => {}
        }
    }
}

fn may_log(limit: &Mutex<LogRateLimit>) -> bool {
    limit.lock().handle_event(Instant::now()).is_some()
}
