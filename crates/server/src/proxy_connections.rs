//! How many connections of programs to network proxies there may be: in all sessions, in a session, and to the proxy of a
//! process. With few descriptors all three numbers become smaller, so that no session takes the connections of others.

use std::sync::{Arc, LazyLock};

use tokio::sync::Semaphore;

use crate::limits::{MAX_CONNECTIONS_PER_PROXY, MAX_PROXY_CONNECTIONS, MAX_PROXY_CONNECTIONS_TOTAL};

static SHARES: LazyLock<ConnectionShares> = LazyLock::new(|| ConnectionShares::new(sandbox::open_files_limit()));

/// Permits for the connections to the network proxies of all sessions. There is one set for the whole program, also if
/// several servers run in it, because the descriptors that connections take belong to the program.
pub(crate) fn of_all_sessions() -> Arc<Semaphore> {
    static PERMITS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(SHARES.all_sessions)));
    Arc::clone(&PERMITS)
}

/// Permits for the connections to the network proxies of one session.
pub(crate) fn of_a_session() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(SHARES.session))
}

/// The most connections to the network proxy of one process.
pub(crate) fn of_a_process() -> usize {
    SHARES.process
}

#[derive(Debug, PartialEq, Eq)]
struct ConnectionShares {
    all_sessions: usize,
    session: usize,
    process: usize,
}

impl ConnectionShares {
    /// `open_files` is the soft limit of descriptors of this program; None: there is no limit.
    fn new(open_files: Option<u64>) -> Self {
        // Each connection takes two descriptors, so connections take a quarter of the descriptors at most.
        let share = open_files.map_or(usize::MAX, |limit| usize::try_from(limit / 8).unwrap_or(usize::MAX));
        let all_sessions = share.clamp(1, MAX_PROXY_CONNECTIONS_TOTAL);
        let session = (all_sessions / 4).clamp(1, MAX_PROXY_CONNECTIONS);
        let process = (session / 2).clamp(1, MAX_CONNECTIONS_PER_PROXY);
        Self { all_sessions, session, process }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_session_leave_descriptors_for_others_and_connections_for_other_sessions() {
        for (open_files, [all_sessions, session, process]) in [
            (Some(0), [1, 1, 1]),
            (Some(1024), [128, 32, 16]),
            (Some(4096), [512, 128, 64]),
            (Some(20_000), [2500, 512, 128]),
            (Some(1 << 20), [4096, 512, 128]),
            (None, [4096, 512, 128]),
        ] {
            let expected = ConnectionShares { all_sessions, session, process };
            assert_eq!(ConnectionShares::new(open_files), expected, "{open_files:?}");
        }
    }
}
