//! What all connections of a server share, and how it all ends.

use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fetch::Fetcher;
use parking_lot::Mutex;
use protocol::ShellInfo;
use session::{ConnectionNumber, MemoryPressure, ReclaimStep};
use spawn::{Child, GuardProgram, KillFuture, Signal, Spawner, SurvivalReason, Survivors, Tag};
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::blocking::{Asker, BlockingThreads, Growth};
use crate::config::Config;
use crate::connection::Connection;
use crate::connection_task::LONGEST_GOODBYE;
use crate::environment::{Variables, server_env, users_shell};
use crate::files::{OPERATIONS_IN_ALL, SearchPlaces, places_for_all};
use crate::guard_watch::keep_guard;
use crate::janitor::Janitor;
use crate::metrics::Metrics;
use crate::outbound::LargeAnswers;
use crate::presence::Presence;
use crate::process::{Process, Stop};
use crate::retention::Budget;
use crate::session::{Place, Session, Sessions};
use crate::starter::Starter;
use crate::survive::survive;
use crate::tokens::{TokenError, Tokens};

/// WebSocket's code for an endpoint that goes away.
const GOING_AWAY: u16 = 1001;

/// How long the last messages have to leave at shutdown.
const FLUSH_PATIENCE: Duration = Duration::from_secs(2);

/// How long a kill that has failed and of which nobody is told waits before it is tried again, at first and at most. Each try costs
/// looks at all processes of the machine.
const KILL_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Threads for work on files that exist before anything is asked of the server. More than one, so that one piece of work that hangs, for
/// example on a dead network mount, does not stop the rest.
const KEPT_THREADS: usize = 2;

/// Threads for work on files that are added at once, for each processor. More than one, because work on files also waits for the disk.
const AT_ONCE_PER_PROCESSOR: usize = 4;

/// When no work on files is begun for so long although some waits, its threads hang and another is added.
const LONGEST_FILE_OPERATION: Duration = Duration::from_millis(250);

/// A server. Cheap to clone; all clones are the same server.
#[derive(Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
}

/// What everything in the server can reach.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) sessions: Sessions,
    pub(crate) presence: Presence,
    pub(crate) janitor: Janitor,
    pub(crate) metrics: Metrics,
    /// Retained output.
    pub(crate) budget: Arc<Budget>,
    /// Input that waits.
    pub(crate) stdin_budget: Arc<Budget>,
    pub(crate) http_budget: Arc<Budget>,
    /// The shell of the user the server runs as.
    pub(crate) shell: ShellInfo,
    pub(crate) env: Variables,
    /// Work that is finished whoever is connected.
    pub(crate) tasks: TaskTracker,
    /// One task per process.
    pub(crate) actors: TaskTracker,
    /// One task per connection.
    pub(crate) connections: TaskTracker,
    /// No new connections.
    pub(crate) closing: CancellationToken,
    last_connection: AtomicU64,
    open: Mutex<Vec<Weak<Connection>>>,
    reclaiming: AtomicBool,
    pub(crate) starter: Starter,
    pub(crate) threads: Arc<BlockingThreads>,
    /// Places for work on files.
    pub(crate) file_places: Arc<Semaphore>,
    pub(crate) search_places: Arc<SearchPlaces>,
    pub(crate) large_answers: LargeAnswers,
    /// What makes HTTP requests, once one was asked for.
    pub(crate) fetcher: OnceCell<Fetcher>,
}

impl Server {
    /// A server that is not listening yet. Must be called inside a runtime.
    pub fn new(config: Config) -> io::Result<Self> {
        let guard = config.guard.as_ref().map(|(program, args)| GuardProgram {
            program: program.clone(),
            args: args.iter().map(Into::into).collect(),
        });
        let spawner = Arc::new(Spawner::new(guard)?);
        if !spawner.tags_work() {
            tracing::warn!(
                "the hard limit of realtime CPU time (ulimit -H -R) is set; a process that detaches itself from its parents may outlive its terminate"
            );
        }
        let env = server_env();
        let shared = Arc::new(Shared {
            janitor: Janitor::new(config.process_retention),
            budget: Budget::new(config.retain_total_bytes),
            stdin_budget: Budget::new(config.max_queued_stdin_total),
            http_budget: Budget::new(config.max_buffered_http),
            search_places: SearchPlaces::new(config.max_searches),
            large_answers: LargeAnswers::new(config.max_large_answers),
            shell: users_shell(&env),
            config,
            starter: Starter::new(Arc::clone(&spawner))?,
            threads: Arc::new(file_threads()?),
            spawner,
            sessions: Sessions::default(),
            presence: Presence::new(),
            metrics: Metrics::new(),
            env,
            tasks: TaskTracker::new(),
            actors: TaskTracker::new(),
            connections: TaskTracker::new(),
            closing: CancellationToken::new(),
            last_connection: AtomicU64::new(0),
            open: Mutex::default(),
            reclaiming: AtomicBool::new(false),
            file_places: places_for_all(),
            fetcher: OnceCell::new(),
        });
        let (for_janitor, for_guard) = (Arc::clone(&shared), Arc::clone(&shared));
        shared.tasks.spawn(async move {
            let closed = for_janitor.closing.clone();
            let chores = async { while survive(for_janitor.janitor.run(&for_janitor)).await.is_none() {} };
            closed.run_until_cancelled(chores).await;
        });
        shared.tasks.spawn(async move {
            let closed = for_guard.closing.clone();
            let watch = async { while survive(keep_guard(&for_guard)).await.is_none() {} };
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
        for connection in shared.open_connections() {
            connection.outbound.close(GOING_AWAY, "server is shutting down");
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

fn file_threads() -> io::Result<BlockingThreads> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let at_once = (processors * AT_ONCE_PER_PROCESSOR).min(OPERATIONS_IN_ALL);
    BlockingThreads::start(
        "blocking",
        KEPT_THREADS,
        OPERATIONS_IN_ALL,
        // How much a session may have under way is decided before.
        Growth { at_once, patience: LONGEST_FILE_OPERATION, most_per_asker: OPERATIONS_IN_ALL },
    )
}

impl Shared {
    pub(crate) fn next_connection(&self) -> ConnectionNumber {
        ConnectionNumber(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn add_connection(&self, connection: &Arc<Connection>) {
        self.open.lock().push(Arc::downgrade(connection));
    }

    pub(crate) fn remove_connection(&self, connection: &Arc<Connection>) {
        self.open.lock().retain(|open| open.as_ptr() != Arc::as_ptr(connection));
    }

    fn open_connections(&self) -> Vec<Arc<Connection>> {
        self.open.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Kills a process and everything it started; returns when they are gone and the process has been reaped.
    pub(crate) async fn kill(&self, process: &Process) -> Result<(), Survivors> {
        self.spawner.kill_tree(process.tag, self.config.kill_patience).await?;
        process.wait_reaped().await;
        process.stop(Stop::Drain);
        Ok(())
    }

    pub(crate) fn kill_in_background(self: &Arc<Self>, process: Arc<Process>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            // Its tag is given to nobody else before this is over.
            let _session = process.session();
            let kill = || shared.spawner.kill_tree(process.tag, shared.config.kill_patience);
            if shared.kill_until_gone(kill).await {
                process.wait_reaped().await;
                process.stop(Stop::Drain);
            }
        });
    }

    /// Kills what is left of a tree whose process is closed.
    pub(crate) fn end_rest_in_background(self: &Arc<Self>, tag: Tag, session: Arc<Session>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            shared.kill_until_gone(|| shared.spawner.kill_tree(tag, shared.config.kill_patience)).await;
            drop(session);
        });
    }

    /// Kills what a start has made that was cancelled before. When this is over, it is certain that its program does not run, unless there
    /// are survivors: those are killed again and again.
    pub(crate) async fn kill_cancelled_start(
        self: &Arc<Self>,
        session: &Arc<Session>,
        place: &Place,
    ) -> Result<(), Survivors> {
        let killed = self.spawner.kill_tree(place.tag, self.config.kill_patience).await;
        if killed.is_err() {
            self.end_rest_in_background(place.tag, Arc::clone(session));
        }
        killed
    }

    /// Kills a process that nobody wants any more and that has no place in a table.
    pub(crate) async fn kill_unclaimed(&self, child: &Child, tag: Tag) {
        if let Err(survivors) = self.spawner.kill_tree(tag, self.config.kill_patience).await {
            tracing::warn!(pid = child.pid(), "{survivors}");
        }
        child.wait().await;
    }

    /// Kills again and again until nobody is left, or nobody but processes of another user. For kills whose failure nobody is told, so that
    /// nobody else would try again. At the end of the server everything is killed anyway. False if somebody may be left.
    async fn kill_until_gone(&self, kill: impl Fn() -> KillFuture) -> bool {
        let (mut pause, longest_pause) = KILL_PAUSES;
        while let Err(survivors) = kill().await {
            tracing::warn!("{survivors}");
            if matches!(survivors.reason, SurvivalReason::NotPermitted) {
                return false;
            }
            if self.closing.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return false;
            }
            pause = longest_pause.min(pause * 2);
        }
        true
    }

    /// A session is over: its processes are killed and forgotten.
    pub(crate) fn end_session_in_background(self: &Arc<Self>, session: Arc<Session>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            shared.sessions.remove(&session.id);
            shared.metrics.sessions(shared.sessions.len());
            // Before the kill, so that nothing is executed after it.
            session.cancel_starts();
            session.table.abandon_all();
            let processes = session.table.processes();
            processes.iter().for_each(|process| process.mark_terminated());
            let kill = || shared.spawner.kill_session(&session.tags, shared.config.kill_patience);
            let killed = kill().await;
            shared.janitor.note_freed(session.discard_processes());
            session.files.watches.end_all();
            // Closing a file can block, and removes what is left of an upload.
            let handles = session.files.handles.take_all();
            if !handles.is_empty() {
                let _closed = session.files.work.run(move || drop(handles)).await;
            }
            if killed.is_err() {
                shared.kill_until_gone(kill).await;
            }
        });
    }

    /// Gives memory back when all event logs together hold too much: what was sent of closed processes, what clients have of
    /// others, and only then what may be missed.
    pub(crate) fn reclaim_if_tight(&self) {
        let mut excess = self.budget.excess();
        if excess == 0 || self.reclaiming.swap(true, Ordering::Acquire) {
            return;
        }
        let processes: Vec<_> = self.sessions.all().iter().flat_map(|session| session.table.processes()).collect();
        let share = (self.budget.limit() / processes.len().max(1)).max(MemoryPressure::ALWAYS_ALLOWED_BYTES);
        for step in [ReclaimStep::SentAndClosed, ReclaimStep::Acknowledged, ReclaimStep::Anything] {
            for process in &processes {
                if excess == 0 {
                    break;
                }
                let reclaimed = process.reclaim(step, share);
                excess = excess.saturating_sub(reclaimed.bytes);
                if reclaimed.missed_bytes > 0 {
                    self.metrics.output_dropped(reclaimed.missed_bytes);
                }
            }
        }
        self.reclaiming.store(false, Ordering::Release);
    }
}
