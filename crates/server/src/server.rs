//! The server as seen by the program that embeds it: creating it, shutting it down, and waiting for its end. Listeners are in `listen`, and
//! the state that all tasks share is in `server_state`.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use spawn::{HostProcess, Signal};

use crate::blocking::{BlockingThreads, JobOwner, PoolGrowth};
use crate::config::Config;
use crate::guard_watch::keep_guard;
use crate::janitor_task;
use crate::limits::LONGEST_GOODBYE;
use crate::process::StopRequest;
use crate::server_state::ServerState;
use crate::survive::survive;
use crate::tokens::{TokenError, Tokens};

/// WebSocket close code for an endpoint that shuts down.
const GOING_AWAY: u16 = 1001;

/// How long shutdown waits for process tasks, and then for other tasks, to queue their last messages.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// If the token file is not read after this time, the server logs an error.
const RELOAD_PATIENCE: Duration = Duration::from_secs(5);

/// A server. Clones are cheap and refer to the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<ServerState>,
    /// One thread, which exists from the beginning and only reads the token file. Clients cannot make it hang, so they cannot delay the
    /// removal of their own tokens.
    reload_thread: Arc<BlockingThreads>,
}

impl Server {
    /// Makes a server that is not listening yet. Must be called inside a tokio runtime. `host` says which settings of the whole program the
    /// server may change: none if the program has other work too ([`HostProcess::shared`]).
    pub fn new(config: Config, host: HostProcess) -> io::Result<Self> {
        let shared = ServerState::new(config, host)?;
        let growth = PoolGrowth { eager_threads: 1, hang_timeout: RELOAD_PATIENCE, most_per_owner: 1 };
        let reload_thread = Arc::new(BlockingThreads::start("token-reload", 1, 1, growth)?);
        let (for_janitor, for_guard) = (Arc::clone(&shared), Arc::clone(&shared));
        shared.tasks.spawn(async move {
            let closed = for_janitor.closing.clone();
            // After a panic, for which `survive` returns None, the janitor goes on.
            let chores = async { while survive(janitor_task::run(&for_janitor)).await.is_none() {} };
            closed.run_until_cancelled(chores).await;
        });
        shared.tasks.spawn(async move {
            // The guard is a separate process that kills the processes of clients if the server is killed.
            let closed = for_guard.closing.clone();
            let watch =
                async { while survive(keep_guard(&for_guard.spawner, &for_guard.starter)).await.is_none() {} };
            closed.run_until_cancelled(watch).await;
        });
        Ok(Self { shared, reload_thread })
    }

    /// Shuts the server down in order: refuses new connections, sends SIGTERM and then SIGKILL to the processes,
    /// sends the last events to the clients, and closes the connections. Each wait for processes, tasks and
    /// connections has a time limit.
    pub async fn shut_down(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.process_tasks.close();
        // Starts are cancelled before the signal, so that no waiting start is executed after the signal.
        shared.sessions.all().iter().for_each(|session| session.cancel_starts());
        // No client can reconnect any more. A process that waits until its output is read may go on, so that it can react to SIGTERM.
        shared.sessions.all().iter().for_each(|session| session.push_everything());
        let _best_effort = shared.spawner.signal_all(Signal::TERM).await;
        let _ = tokio::time::timeout(shared.config.shutdown_grace, shared.process_tasks.wait()).await;
        self.kill_everything().await;
        for session in shared.sessions.all() {
            for process in session.table.processes() {
                process.stop(StopRequest::Drain);
            }
            session.push_everything();
            // The tasks of watches never end by themselves, and `tasks.wait()` below would wait for them.
            session.files.watches.close_all();
        }
        let _ = tokio::time::timeout(FLUSH_PATIENCE, shared.process_tasks.wait()).await;
        // A client that waits for the end of a process gets its answer before the close frame.
        shared.tasks.close();
        let _ = tokio::time::timeout(FLUSH_PATIENCE, shared.tasks.wait()).await;
        for outbound in shared.open_connections() {
            outbound.close(GOING_AWAY, "server is shutting down");
        }
        shared.connections.close();
        // Each connection task closes a connection whose peer does not read. A peer that reads slowly gets its last messages.
        let _ = tokio::time::timeout(LONGEST_GOODBYE, shared.connections.wait()).await;
        // The connections of harnesses have sent their last messages.
        shared.leaving_relay.cancel();
        shared.relay_tasks.close();
        let _ = tokio::time::timeout(FLUSH_PATIENCE, shared.relay_tasks.wait()).await;
        self.end_sandboxes().await;
        // The fetcher is closed after the connections, because their HTTP requests use it.
        if let Some(fetcher) = shared.fetcher.get() {
            fetcher.close().await;
        }
    }

    /// Kills all processes of clients at once. Survivors are logged.
    pub async fn kill_everything(&self) {
        if let Err(survivors) = self.shared.spawner.kill_all(self.shared.config.kill_patience).await {
            tracing::error!("{survivors}");
        }
    }

    /// Ends all sandboxes, so that nothing that was made for them is left in the file system. The server ends: call it when the processes
    /// have ended.
    pub async fn end_sandboxes(&self) {
        let _ = tokio::time::timeout(FLUSH_PATIENCE, self.shared.end_sandboxes()).await;
        // A session that was not among them is being ended by a task, which ends its sandboxes too. Other tasks end when the server closes.
        self.shared.closing.cancel();
        self.shared.tasks.close();
        let _ = tokio::time::timeout(FLUSH_PATIENCE, self.shared.tasks.wait()).await;
    }

    /// Waits until there was no connection and no session for the time `--exit-when-idle`. Never returns if that is not set.
    pub async fn idle(&self) {
        match self.shared.config.exit_when_idle {
            Some(patience) => self.shared.presence.wait_unused_for(patience).await,
            None => std::future::pending().await,
        }
    }

    /// Reads the token file again, on a thread that does nothing else. None if that panicked. If the file system hangs, the old tokens stay
    /// valid until it goes on, and an error is logged.
    pub async fn reload_tokens(&self, tokens: Arc<Tokens>) -> Option<Result<(), TokenError>> {
        let mut reload = pin!(self.reload_thread.run(JobOwner::SERVER, move || tokens.reload()));
        if let Ok(reloaded) = tokio::time::timeout(RELOAD_PATIENCE, &mut reload).await {
            return reloaded;
        }
        tracing::error!(
            "reading the token file has taken {} s and is not done; until then the old tokens are accepted. If it stays so, check the file system of the token file, or restart the server",
            RELOAD_PATIENCE.as_secs()
        );
        reload.await
    }

    /// The settings of the server.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn tokens_are_reloaded_while_clients_make_all_file_threads_hang() {
        const MOST_FILE_OPERATIONS: usize = 4;
        let config = Config { max_file_operations_total: MOST_FILE_OPERATIONS, ..Config::default() };
        let server = Server::new(config, HostProcess::shared()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first-token-of-mine\n").unwrap();
        let tokens = Arc::new(Tokens::load(file.path()).unwrap());

        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let (begun, mut has_begun) = tokio::sync::mpsc::channel(MOST_FILE_OPERATIONS);
        let hanging: Vec<_> = (0..MOST_FILE_OPERATIONS)
            .map(|_| {
                let (ended, begun) = (Arc::clone(&ended), begun.clone());
                let threads = Arc::clone(&server.shared.threads);
                tokio::spawn(async move {
                    let hang = move || {
                        begun.blocking_send(()).unwrap();
                        ended.lock().recv().unwrap_or_default();
                    };
                    threads.run(threads.new_owner(), hang).await
                })
            })
            .collect();
        for _ in 0..MOST_FILE_OPERATIONS {
            has_begun.recv().await.unwrap();
        }

        std::fs::write(file.path(), "second-token-of-mine\n").unwrap();
        let reloaded = tokio::time::timeout(RELOAD_PATIENCE * 4, server.reload_tokens(tokens)).await;
        drop(end);
        for operation in hanging {
            operation.await.unwrap();
        }
        server.shut_down().await;
        assert!(matches!(reloaded, Ok(Some(Ok(())))), "{reloaded:?}");
    }
}
