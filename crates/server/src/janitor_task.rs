//! The task of the janitor: waits until a chore of the [`Janitor`](crate::janitor::Janitor) is due, and does it.

use std::sync::Arc;
use std::time::Instant;

use crate::blocking::Asker;
use crate::janitor::{Chore, OutlivedTree, READ_GRACE, SWEEP_INTERVAL};
use crate::server_state::ServerState;

/// Does the chores, for ever. A chore that panics costs itself only: it is not on the heap any more, and this can be run again.
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
        Chore::ForgetProcess(closed) => janitor.retention_over(closed),
        Chore::ForgetKept(session) => {
            if let Some(session) = session.upgrade() {
                janitor.look_after_kept(&session);
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
                janitor.watch_expiry(&session);
            }
        }
        Chore::PushWithoutRead(session, connection) => {
            let Some(session) = session.upgrade() else { return };
            match session.outbound().and_then(|outbound| outbound.last_catch_up()) {
                // It is catching up on its processes one after the other.
                Some(at) if at.elapsed() < READ_GRACE => janitor.push_without_read_later(&session, connection),
                _ => session.push_without_read(connection),
            }
        }
        Chore::ReturnMemory => {
            let threads = Arc::clone(&shared.threads);
            shared.tasks.spawn(async move { threads.run(Asker::SERVER, spawn::trim_freed_memory).await });
        }
        Chore::EndRestOfTree(tree) => {
            if let Some(session) = tree.session.upgrade() {
                shared.end_rest_in_background(tree.tag, session);
            }
        }
        Chore::Sweep => {
            // First, so that a sweep that panics is followed by another one.
            janitor.add(Instant::now() + SWEEP_INTERVAL, Chore::Sweep);
            look_for_rests(shared);
            shared.spawner.reap_orphans();
            shared.spawner.continue_guard();
        }
    }
}

fn look_for_rests(shared: &Arc<ServerState>) {
    let trees = shared.janitor.take_maybe_outlived();
    if trees.is_empty() {
        return;
    }
    let shared = Arc::clone(shared);
    shared.clone().tasks.spawn(async move {
        let (spawner, tags) = (Arc::clone(&shared.spawner), trees.iter().map(|tree| tree.tag).collect());
        let look = shared.threads.run(Asker::SERVER, move || spawner.still_running(&tags));
        // Other work may keep all these threads busy. Without an answer each may have left something.
        let alive = tokio::time::timeout(SWEEP_INTERVAL, look).await.ok().flatten();
        let is_left = |tree: &OutlivedTree| alive.as_ref().is_none_or(|alive| alive.contains(&tree.tag));
        for tree in trees.into_iter().filter(is_left) {
            shared.janitor.add(tree.deadline, Chore::EndRestOfTree(tree));
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
    use transport::{Framing, Principal, ReceiptProof};

    use super::*;
    use crate::config::Config;
    use crate::outbound::Outbound;
    use crate::session::Session;
    use crate::start_cancel::StartCancel;

    /// Nothing here takes this long, even on a loaded machine.
    const AT_LAST: Duration = Duration::from_secs(20);

    fn session(shared: &ServerState) -> Arc<Session> {
        let config = &shared.config;
        let outbound = Arc::new(Outbound::new(
            shared.next_connection(),
            Framing::Lines,
            ReceiptProof::Flush,
            config.retain_bytes,
        ));
        Arc::new(Session::new(
            SessionId::from("s".to_owned()),
            Principal::Anybody,
            shared.spawner.session_tags(),
            outbound,
            shared.session_files(),
            config,
            shared.presence.enter(),
        ))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn rests_of_trees_are_ended_although_all_threads_are_busy() {
        let shared = ServerState::new(Config::default(), spawn::HostProcess::shared()).unwrap();
        let session = session(&shared);
        let tag = session.tags.next();
        let command = SpawnCommand {
            argv: vec!["/bin/sleep".into(), "1000".into()],
            arg0: None,
            env: Vec::new(),
            cwd: "/".into(),
            stdio: Stdio::Pipes { stdin: StdinMode::Null },
            umask: None,
        };
        let rest =
            shared.starter.start(session.asker(), command, tag, &StartCancel::default()).await.unwrap().unwrap();
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let mut hanging = Vec::new();
        for _ in 0..shared.config.max_file_operations_total {
            let gate = Arc::clone(&gate);
            let mut work = Box::pin(shared.threads.run(Asker::SERVER, move || gate.lock().recv().is_ok()));
            assert!(timeout(Duration::ZERO, &mut work).await.is_err());
            hanging.push(work);
        }

        shared.janitor.end_rest_of_tree_at(Instant::now(), tag, Arc::downgrade(&session));
        look_for_rests(&shared);
        let running = Arc::clone(&shared);
        let task = tokio::spawn(async move { run(&running).await });
        timeout(AT_LAST, rest.child.wait()).await.expect("its time is over");
        drop(open);
        for work in hanging {
            assert_eq!(work.await, Some(false));
        }
        task.abort();
    }
}
