//! The state that all tasks of a server share: settings, sessions, threads, budgets and counters. Also the functions that end sessions and
//! free memory; those that kill processes are in `killing`. This module does not know requests.

mod killing;

use std::ffi::OsStr;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fetch::{Fetcher, Lookups};
use parking_lot::Mutex;
use protocol::ShellInfo;
use remote::DirectDoor;
use session::{ConnectionNumber, LogRateLimit, ReclaimStep};
use spawn::{GuardProgram, HostProcess, Spawner};
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{PeerLabel, Principal};

use crate::blocking::{BlockingThreads, JobOwner, PoolGrowth};
use crate::budget::Budget;
use crate::config::Config;
use crate::environment::{Variables, server_env, users_shell};
use crate::files::{SearchPermits, SessionFiles};
use crate::janitor::Janitor;
use crate::metrics::{AuthenticationFailure, Metrics};
use crate::outbound::{LargeAnswers, Outbound};
use crate::presence::Presence;
use crate::sandboxes::{LauncherFactory, SessionSandbox, SessionSandboxes};
use crate::session::{Session, Sessions};
use crate::starter::Starter;

/// Threads for work on files that exist from the beginning, so that work goes on even if the system gives no more threads. More than one,
/// so that one operation that hangs, for example on a dead network mount, does not stop the others.
const KEPT_THREADS: usize = 2;

/// Threads for work on files, for each processor, up to which a thread is added as soon as none is free. More than one, because work on
/// files also waits for the disk.
const EAGER_THREADS_PER_PROCESSOR: usize = 4;

/// If work on files waits and no thread has begun new work for this long, the threads are taken to hang and another
/// one is added.
const FILE_THREAD_HANG_TIMEOUT: Duration = Duration::from_millis(250);

/// At most 20 log lines in 10 s about clients that ask for a session of another principal, so that such a client cannot fill the log.
/// `/metrics` counts every attempt.
const FOREIGN_SESSION_LINES: LogRateLimit = LogRateLimit::new(20, Duration::from_secs(10));

/// The shared state of a server.
pub(crate) struct ServerState {
    pub(crate) config: Config,
    pub(crate) spawner: Arc<Spawner>,
    pub(crate) sessions: Sessions,
    pub(crate) presence: Presence,
    pub(crate) janitor: Janitor,
    pub(crate) metrics: Metrics,
    foreign_session_log: Mutex<LogRateLimit>,
    /// Memory of the retained output of all processes.
    pub(crate) output_budget: Arc<Budget>,
    /// Bytes of input that wait in the stdin queues of all processes.
    pub(crate) stdin_budget: Arc<Budget>,
    /// Memory of HTTP answers that are held as a whole until they have been sent, in all sessions together.
    pub(crate) http_budget: Arc<Budget>,
    /// Memory for bytes of clients that TCP ports have not taken yet (`--max-port-buffers`).
    pub(crate) port_budget: Arc<Budget>,
    /// Permits for TCP streams (`--max-port-streams-total`).
    pub(crate) port_permits: Arc<Semaphore>,
    /// The login shell of the user as whom the server runs.
    pub(crate) shell: ShellInfo,
    /// The environment of the server.
    pub(crate) env: Variables,
    /// Tasks that are finished even if the connection that caused them ends.
    pub(crate) tasks: TaskTracker,
    /// One task per process.
    pub(crate) process_tasks: TaskTracker,
    /// One task per connection.
    pub(crate) connections: TaskTracker,
    /// Permits for connections that were admitted (`--max-connections`).
    pub(crate) connection_permits: Arc<Semaphore>,
    /// Tasks that carry the connections of harnesses. They outlive these connections.
    pub(crate) relay_tasks: TaskTracker,
    /// Cancelled when no connection of a harness needs the relay any more.
    pub(crate) leaving_relay: CancellationToken,
    /// One for each executor of this server that offers direct paths. They check the tickets that arrive at the
    /// listeners.
    pub(crate) direct_doors: Mutex<Vec<DirectDoor>>,
    /// Cancelled when the server begins to shut down.
    pub(crate) closing: CancellationToken,
    /// The number that the newest connection got.
    last_connection: AtomicU64,
    /// The send queues of all open connections.
    open_connections: Mutex<Vec<Weak<Outbound>>>,
    /// Whether a task runs [`Self::reclaim_if_tight`] now.
    reclaiming: AtomicBool,
    pub(crate) starter: Starter,
    /// None if the server was configured without a launcher; then requests that need a sandbox are refused.
    sandbox_launcher: Option<Arc<LauncherFactory>>,
    /// Threads for work that blocks, mostly on files.
    pub(crate) threads: Arc<BlockingThreads>,
    /// Permits for file operations (`--max-file-operations-total`).
    file_permits: Arc<Semaphore>,
    search_permits: Arc<SearchPermits>,
    pub(crate) large_answers: LargeAnswers,
    /// Resolves host names, for HTTP requests and for the network proxies of processes.
    pub(crate) lookups: Arc<Lookups>,
    /// Makes HTTP requests. It is created for the first request.
    pub(crate) fetcher: OnceCell<Fetcher>,
}

impl ServerState {
    /// Must be called inside a tokio runtime.
    pub(crate) fn new(config: Config, host: HostProcess) -> io::Result<Arc<Self>> {
        // The guard is a separate process that kills the processes of clients if the server is killed.
        let guard = config.guard.as_ref().map(|(program, args)| GuardProgram {
            program: program.clone(),
            args: args.iter().map(Into::into).collect(),
        });
        let spawner = Arc::new(Spawner::new(host, guard)?);
        if let Err(problem) = spawner.check_tags() {
            tracing::warn!("{problem}");
        }
        let env = server_env();
        let sandbox_launcher = config.sandbox_launcher.clone().map(|program| {
            Arc::new(LauncherFactory::new(program, Arc::clone(&spawner), env.get(OsStr::new("TMPDIR")).cloned()))
        });
        let all_sandboxes = sandbox_launcher.as_ref().map(|launcher| launcher.all_sandboxes());
        Ok(Arc::new(Self {
            janitor: Janitor::new(config.process_retention),
            output_budget: Budget::new(config.retain_total_bytes),
            stdin_budget: Budget::new(config.max_queued_stdin_total),
            http_budget: Budget::new(config.max_buffered_http),
            port_budget: Budget::new(config.max_port_buffers),
            port_permits: Arc::new(Semaphore::new(config.max_port_streams_total)),
            threads: Arc::new(file_threads(config.max_file_operations_total)?),
            file_permits: Arc::new(Semaphore::new(config.max_file_operations_total)),
            search_permits: SearchPermits::new(config.max_searches),
            connection_permits: Arc::new(Semaphore::new(config.max_connections)),
            large_answers: LargeAnswers::new(config.max_large_answers),
            shell: users_shell(&env),
            config,
            starter: Starter::new(Arc::clone(&spawner), all_sandboxes)?,
            sandbox_launcher,
            spawner,
            sessions: Sessions::default(),
            presence: Presence::new(),
            metrics: Metrics::new(),
            foreign_session_log: Mutex::new(FOREIGN_SESSION_LINES),
            env,
            tasks: TaskTracker::new(),
            process_tasks: TaskTracker::new(),
            connections: TaskTracker::new(),
            relay_tasks: TaskTracker::new(),
            leaving_relay: CancellationToken::new(),
            direct_doors: Mutex::default(),
            closing: CancellationToken::new(),
            last_connection: AtomicU64::new(0),
            open_connections: Mutex::default(),
            reclaiming: AtomicBool::new(false),
            lookups: Arc::default(),
            fetcher: OnceCell::new(),
        }))
    }

    pub(crate) fn next_connection(&self) -> ConnectionNumber {
        ConnectionNumber(self.last_connection.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Logs and counts that a client has asked for a session that another principal has made.
    pub(crate) fn note_foreign_session(&self, principal: &Principal, peer: &PeerLabel) {
        self.metrics.authentication_failed(AuthenticationFailure::other_session);
        if self.foreign_session_log.lock().handle_event(Instant::now()).is_some() {
            tracing::warn!(%peer, %principal, "refused: the client asked for a session of another user or token");
        }
    }

    /// The part of a new session that is about files.
    pub(crate) fn session_files(&self) -> SessionFiles {
        SessionFiles::new(&self.config, &self.search_permits, &self.file_permits, &self.threads)
    }

    /// The part of a new session that is about sandboxes.
    pub(crate) fn session_sandboxes(&self) -> SessionSandboxes {
        SessionSandboxes::new(self.sandbox_launcher.clone())
    }

    pub(crate) fn add_connection(&self, outbound: &Arc<Outbound>) {
        self.open_connections.lock().push(Arc::downgrade(outbound));
    }

    pub(crate) fn remove_connection(&self, outbound: &Arc<Outbound>) {
        self.open_connections.lock().retain(|open| open.as_ptr() != Arc::as_ptr(outbound));
    }

    pub(crate) fn open_connections(&self) -> Vec<Arc<Outbound>> {
        self.open_connections.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Kills and forgets the processes of a session that has ended, and closes its files.
    pub(crate) fn end_session_in_background(self: &Arc<Self>, session: Arc<Session>) {
        let shared = Arc::clone(self);
        self.tasks.spawn(async move {
            shared.sessions.remove(&session.id);
            shared.metrics.set_session_count(shared.sessions.len());
            // Starts are cancelled before the kill, so that no program is executed after the kill.
            session.cancel_starts();
            session.table.free_ids_of_starts();
            let processes = session.table.processes();
            processes.iter().for_each(|process| process.mark_terminated());
            let kill = || shared.spawner.kill_session(&session.tags, shared.config.kill_patience);
            let killed = kill().await;
            shared.janitor.note_freed(session.discard_processes());
            session.files.watches.close_all();
            end_sandboxes_of(&session).await;
            // Closing a file can block. Closing an upload that was not committed deletes its temporary file.
            let handles = session.files.handles.take_all();
            if !handles.is_empty() {
                let _none_if_panicked = session.files.operations.run(move || drop(handles)).await;
            }
            if killed.is_err() {
                shared.kill_until_gone(kill).await;
            }
        });
    }

    /// Gives up sandboxes on a thread that may block, because ending one removes directories.
    pub(crate) fn end_sandboxes_in_background(&self, sandboxes: Vec<Arc<SessionSandbox>>) {
        if !sandboxes.is_empty() {
            let threads = Arc::clone(&self.threads);
            self.tasks.spawn(async move { threads.run(JobOwner::SERVER, move || drop(sandboxes)).await });
        }
    }

    /// Ends the sandboxes of all sessions, so that no placeholder of theirs is left when the server has ended.
    pub(crate) async fn end_sandboxes(&self) {
        for session in self.sessions.all() {
            end_sandboxes_of(&session).await;
        }
    }

    /// Drops retained output if all event logs together occupy too much memory (`--retain-total-bytes`): first output that clients have
    /// acknowledged, then output of closed processes that was sent, and only then output that a client may miss.
    pub(crate) fn reclaim_if_tight(&self) {
        let mut excess = self.output_budget.excess();
        if excess == 0 || self.reclaiming.swap(true, Ordering::Acquire) {
            return;
        }
        let processes: Vec<_> = self.sessions.all().iter().flat_map(|session| session.table.processes()).collect();
        let share_bytes = self.output_budget.limit() / processes.len().max(1);
        for step in [ReclaimStep::Acknowledged, ReclaimStep::SentAndClosed, ReclaimStep::Anything] {
            for process in &processes {
                if excess == 0 {
                    break;
                }
                let reclaimed = process.reclaim(step, share_bytes);
                excess = excess.saturating_sub(reclaimed.bytes);
                if reclaimed.missed_bytes > 0 {
                    self.metrics.output_dropped(reclaimed.missed_bytes);
                }
            }
        }
        self.reclaiming.store(false, Ordering::Release);
    }
}

/// Ends the sandboxes of a session. This removes directories, which can block.
async fn end_sandboxes_of(session: &Session) {
    let sandboxes = session.sandboxes.take_all();
    if !sandboxes.is_empty() {
        let _none_if_panicked = session.files.operations.run(move || drop(sandboxes)).await;
    }
}

fn file_threads(most: usize) -> io::Result<BlockingThreads> {
    let most = most.max(KEPT_THREADS);
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let eager_threads = (processors * EAGER_THREADS_PER_PROCESSOR).min(most);
    BlockingThreads::start(
        "blocking",
        KEPT_THREADS,
        most,
        // Permits limit the file operations of a session, so the pool need not limit them.
        PoolGrowth { eager_threads, hang_timeout: FILE_THREAD_HANG_TIMEOUT, most_per_owner: most },
    )
}
