//! A server as the program that embeds it sees it: made, asked to end, and waited for. What its tasks share is in `server_state`.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use spawn::{HostProcess, Signal};

use crate::blocking::Asker;
use crate::config::Config;
use crate::guard_watch::keep_guard;
use crate::janitor_task;
use crate::limits::LONGEST_GOODBYE;
use crate::process::Stop;
use crate::server_state::ServerState;
use crate::survive::survive;
use crate::tokens::{TokenError, Tokens};

/// WebSocket's code for an endpoint that goes away.
const GOING_AWAY: u16 = 1001;

/// How long the last messages have to leave at shutdown.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// A server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<ServerState>,
}

impl Server {
    /// A server that is not listening yet. Must be called inside a runtime. What a server does to the program that it runs in depends on
    /// `host`: nothing if the program has other work too ([`HostProcess::shared`]).
    pub fn new(config: Config, host: HostProcess) -> io::Result<Self> {
        let shared = ServerState::new(config, host)?;
        let (for_janitor, for_guard) = (Arc::clone(&shared), Arc::clone(&shared));
        shared.tasks.spawn(async move {
            let closed = for_janitor.closing.clone();
            let chores = async { while survive(janitor_task::run(&for_janitor)).await.is_none() {} };
            closed.run_until_cancelled(chores).await;
        });
        shared.tasks.spawn(async move {
            let closed = for_guard.closing.clone();
            let watch =
                async { while survive(keep_guard(&for_guard.spawner, &for_guard.starter)).await.is_none() {} };
            closed.run_until_cancelled(watch).await;
        });
        Ok(Self { shared })
    }

    /// Ends in order: no new connections, TERM and then KILL for the processes, the last events to the clients, a
    /// goodbye. Returns when nothing is left.
    pub async fn shut_down(&self) {
        let shared = &self.shared;
        shared.closing.cancel();
        shared.actors.close();
        // Before the signal: no start that waits for its turn is executed once those before it have ended.
        shared.sessions.all().iter().for_each(|session| session.cancel_starts());
        // No client can come back, so a process that waits for one may go on and end in order.
        shared.sessions.all().iter().for_each(|session| session.push_everything());
        let _as_far_as_permitted = shared.spawner.signal_all(Signal::TERM).await;
        let _ = tokio::time::timeout(shared.config.shutdown_grace, shared.actors.wait()).await;
        self.kill_everything().await;
        for session in shared.sessions.all() {
            for process in session.table.processes() {
                process.stop(Stop::Drain);
            }
            session.push_everything();
            // Their tasks would be waited for.
            session.files.watches.end_all();
        }
        let _ = tokio::time::timeout(FLUSH_PATIENCE, shared.actors.wait()).await;
        // Whoever waits for a process to be gone gets the answer before the goodbye.
        shared.tasks.close();
        let _ = tokio::time::timeout(FLUSH_PATIENCE, shared.tasks.wait()).await;
        for outbound in shared.open_connections() {
            outbound.close(GOING_AWAY, "server is shutting down");
        }
        shared.connections.close();
        // Each connection gives up a peer that takes nothing; one that is slow gets its last messages.
        let _ = tokio::time::timeout(LONGEST_GOODBYE, shared.connections.wait()).await;
    }

    /// Kills every process at once.
    pub async fn kill_everything(&self) {
        if let Err(survivors) = self.shared.spawner.kill_all(self.shared.config.kill_patience).await {
            tracing::error!("{survivors}");
        }
    }

    /// Waits until nobody has used the server for the time after which it is to end by itself.
    pub async fn idle(&self) {
        match self.shared.config.exit_when_idle {
            Some(patience) => self.shared.presence.deserted_for(patience).await,
            None => std::future::pending().await,
        }
    }

    /// Reads the tokens again, on a thread that may block. None if that panicked.
    pub async fn reload_tokens(&self, tokens: Arc<Tokens>) -> Option<Result<(), TokenError>> {
        self.shared.threads.run(Asker::SERVER, move || tokens.reload()).await
    }

    /// The limit and duration settings in force.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }
}
