//! How long an end waits before it calls a service again, after the service has refused a request with status 429 or
//! 503.

use std::time::Duration;

/// The wait after status 429 (too many requests) without a `Retry-After` in seconds.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);

/// The longest wait. A `Retry-After` above it may be a mistake of the service, so the service is called again after
/// this time.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The wait that a refusal with this status and this `Retry-After` asks for. None: it asks for no wait.
pub(crate) fn asked_wait(status: u16, retry_after: Option<Duration>) -> Option<Duration> {
    match status {
        429 => Some(retry_after.unwrap_or(DEFAULT_WAIT).min(LONGEST_WAIT)),
        503 => retry_after.map(|wait| wait.min(LONGEST_WAIT)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_left_alone_as_long_as_it_asks_within_a_limit() {
        let seconds = Duration::from_secs;
        assert_eq!(asked_wait(429, Some(seconds(7))), Some(seconds(7)));
        assert_eq!(asked_wait(429, None), Some(DEFAULT_WAIT));
        assert_eq!(asked_wait(503, Some(seconds(u64::MAX))), Some(LONGEST_WAIT));
        assert_eq!(asked_wait(503, None), None);
        assert_eq!(asked_wait(500, Some(seconds(7))), None);
    }
}
