//! The task that carries out the chores of the [`Janitor`](crate::janitor::Janitor) when they are due.

use std::sync::Arc;
use std::time::Instant;

use crate::blocking::JobOwner;
use crate::janitor::{Chore, LeftoverTree, READ_GRACE, SWEEP_INTERVAL};
use crate::server_state::ServerState;

/// Carries out chores for ever. If a chore panics, the caller can run this again: the chore has left the heap, and the others are not
/// affected.
pub(crate) async fn run(shared: &Arc<ServerState>) {
    loop {
        shared.janitor.wait().await;
        while let Some(chore) = shared.janitor.take_due(Instant::now()) {
            perform(chore, shared);
        }
    }
}

fn perform(chore: Chore, shared: &Arc<ServerState>) {
    let janitor = &shared.janitor;
    match chore {
        Chore::ForgetProcess(closed) => janitor.retention_over(closed, &shared.metrics),
        Chore::ForgetKept(session) => {
            if let Some(session) = session.upgrade() {
                janitor.forget_expired_processes(&session, &shared.metrics);
            }
        }
        Chore::EndHold(session) => {
            if let Some(session) = session.upgrade() {
                session.wake_processes();
            }
        }
        Chore::ExpireSession(session) => {
            let Some(session) = session.upgrade() else { return };
            if session.end_if_expired(Instant::now()) {
                shared.end_session_in_background(session);
            } else {
                janitor.plan_expiry_check(&session);
            }
        }
        Chore::PushWithoutRead(session, connection) => {
            let Some(session) = session.upgrade() else { return };
            match session.outbound().and_then(|outbound| outbound.last_catch_up()) {
                // The client has just read from a process, so it may be reading from its processes one after the other.
                Some(at) if at.elapsed() < READ_GRACE => janitor.schedule_push_without_read(&session, connection),
                _ => session.push_without_read(connection),
            }
        }
        Chore::TrimMemory => {
            let threads = Arc::clone(&shared.threads);
            shared.tasks.spawn(async move { threads.run(JobOwner::SERVER, spawn::trim_freed_memory).await });
        }
        Chore::KillLeftovers(tree) => {
            if let Some(session) = tree.session.upgrade() {
                shared.kill_leftovers_in_background(tree.tag, session);
            }
        }
        Chore::Sweep => {
            // The next sweep is planned first, so that it comes even if this one panics.
            janitor.add(Instant::now() + SWEEP_INTERVAL, Chore::Sweep);
            check_closed_trees(shared);
            end_idle_sandboxes(shared);
            shared.spawner.reap_orphans();
            shared.spawner.continue_guard();
        }
    }
}

/// Ends the sandboxes that no process and no request has used for a while.
fn end_idle_sandboxes(shared: &Arc<ServerState>) {
    let now = Instant::now();
    let idle = shared.sessions.all().iter().flat_map(|session| session.sandboxes.take_idle(now)).collect();
    shared.end_sandboxes_in_background(idle);
}

/// Checks which closed processes have descendants that still run, and plans to kill those descendants at their
/// deadlines. Only processes that were started with a timeout are checked.
fn check_closed_trees(shared: &Arc<ServerState>) {
    let trees = shared.janitor.take_unchecked_trees();
    if trees.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    shared.clone().tasks.spawn(async move {
        let (spawner, tags) = (Arc::clone(&shared.spawner), trees.iter().map(|tree| tree.tag).collect());
        let check = shared.threads.run(JobOwner::SERVER, move || spawner.still_running(&tags));
        // Other work may keep all threads busy. If the check is not done in time, every tree is treated as if a
        // process of it still ran.
        let alive = tokio::time::timeout(SWEEP_INTERVAL, check).await.ok().flatten();
        let may_run = |tree: &LeftoverTree| alive.as_ref().is_none_or(|alive| alive.contains(&tree.tag));
        for tree in trees.into_iter().filter(may_run) {
            shared.janitor.add(tree.deadline, Chore::KillLeftovers(tree));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use protocol::SessionId;
    use spawn::{SpawnCommand, StdinMode, Stdio};
    use tokio::time::timeout;
    use transport::{Framing, Principal, ProofOfReceipt};

    use super::*;
    use crate::config::Config;
    use crate::outbound::Outbound;
    use crate::session::Session;
    use crate::start_cancel::StartCancel;
    use crate::starter::StartPlace;

    /// Longer than anything in these tests takes, even on a loaded machine.
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn new_session(shared: &ServerState) -> Arc<Session> {
        let config = &shared.config;
        let outbound = Arc::new(Outbound::new(
            shared.next_connection(),
            Framing::Lines,
            ProofOfReceipt::Flush,
            config.retain_bytes,
        ));
        Arc::new(Session::new(
            SessionId::from("s".to_owned()),
            Principal::Anybody,
            shared.spawner.session_tags(),
            outbound,
            (shared.session_files(), shared.session_sandboxes()),
            config,
            shared.presence.enter(),
        ))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn descendants_of_closed_processes_are_killed_although_all_threads_are_busy() {
        let shared = ServerState::new(Config::default(), spawn::HostProcess::shared()).unwrap();
        let session = new_session(&shared);
        let tag = session.tags.next();
        let command = SpawnCommand {
            argv: vec!["/bin/sleep".into(), "1000".into()],
            arg0: None,
            env: Vec::new(),
            cwd: "/".into(),
            stdio: Stdio::Pipes { stdin: StdinMode::Null },
            umask: None,
            limits: None,
        };
        let leftover = shared
            .starter
            .start(session.job_owner(), command, tag, &StartCancel::default(), StartPlace::Host)
            .await
            .unwrap()
            .unwrap();
        // Work on all threads hangs until `release` is dropped.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let mut hanging = Vec::new();
        for _ in 0..shared.config.max_file_operations_total {
            let released = Arc::clone(&released);
            let mut work = Box::pin(shared.threads.run(JobOwner::SERVER, move || released.lock().recv().is_ok()));
            assert!(timeout(Duration::ZERO, &mut work).await.is_err());
            hanging.push(work);
        }

        shared.janitor.kill_leftovers_at(Instant::now(), tag, Arc::downgrade(&session));
        check_closed_trees(&shared);
        let shared_with_task = Arc::clone(&shared);
        let task = tokio::spawn(async move { run(&shared_with_task).await });
        timeout(TIMEOUT, leftover.spawned.child.wait()).await.expect("the leftover process is killed");
        drop(release);
        for work in hanging {
            assert_eq!(work.await, Some(false));
        }
        task.abort();
    }
}
