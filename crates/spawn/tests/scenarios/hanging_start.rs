//! Starts that hang while the kernel opens the program, as on a network file system whose server is gone. The tests
//! use a file lease for this: before another process may open the file, the kernel asks the holder of the lease to
//! give the lease up, and waits.

use std::path::Path;
use std::sync::Arc;

use spawn::{CancelFlag, ChildExitStatus, SpawnCommand, SpawnError};
use tempfile::tempdir;

use crate::support::{RunningProcess, TIMEOUT, World, command, perl, read_until, with_stdin, within};

/// A script that holds a lease on the file that the variable `FILE` names until its stdin ends. It prints `leased`
/// when it has the lease, and `wanted` when another process opens the file.
const HOLD_LEASE: &str = include_str!("../../../testkit/hold_lease.pl");

/// Copies a program and starts a process that holds a lease on the copy. Returns that process and a command that executes the copy.
async fn hold_lease(
    world: &World,
    original: &str,
    directory: &Path,
    arguments: &[&Path],
) -> (RunningProcess, SpawnCommand) {
    let program = directory.join("program");
    std::fs::copy(original, &program).expect("a copy of the program");
    let mut holder_command = with_stdin(perl(HOLD_LEASE));
    holder_command.env.push(("FILE".into(), program.clone().into()));
    let holder = world.start(&holder_command);
    read_until(&holder.stdout, "leased").await;
    let mut hanging = command([program.to_str().expect("a path in UTF-8")]);
    hanging.argv.extend(arguments.iter().map(Into::into));
    (holder, hanging)
}

#[tokio::test]
async fn a_start_that_hangs_keeps_no_pipe_of_other_processes_open() {
    let directory = tempdir().unwrap();
    let world = Arc::new(World::new());
    let (mut holder, hanging) = hold_lease(&world, "/bin/true", directory.path(), &[]).await;
    let mut cat = world.start(&with_stdin(command(["cat"])));

    let starting = tokio::task::spawn_blocking({
        let world = Arc::clone(&world);
        move || world.start(&hanging)
    });
    read_until(&holder.stdout, "wanted").await;
    drop(cat.stdin.take());
    assert_eq!(within(cat.child.wait()).await, ChildExitStatus::Exited(0));
    assert!(!starting.is_finished(), "cat must see the end of its stdin while the start hangs");

    drop(holder.stdin.take());
    let started = within(starting).await.unwrap();
    assert_eq!(within(started.child.wait()).await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn a_hanging_start_that_is_cancelled_and_killed_never_runs_its_program_and_its_flag_stays_set() {
    let directory = tempdir().unwrap();
    let marker = directory.path().join("it has run");
    let world = Arc::new(World::new());
    let (mut holder, hanging) = hold_lease(&world, "/usr/bin/touch", directory.path(), &[&marker]).await;
    let (cancelled, tag) = (Arc::new(CancelFlag::default()), world.tags.next());
    let starting = tokio::task::spawn_blocking({
        let (world, cancelled) = (Arc::clone(&world), Arc::clone(&cancelled));
        move || world.spawner.spawn(&hanging, tag, &cancelled)
    });
    read_until(&holder.stdout, "wanted").await;
    cancelled.cancel();
    within(world.spawner.kill_tree(tag, TIMEOUT)).await.unwrap();

    let killed = within(starting).await.unwrap().unwrap().child;
    assert_eq!(within(killed.wait()).await, ChildExitStatus::Signaled(9));
    let later = world.spawner.spawn(&command(["true"]), world.tags.next(), &cancelled);
    assert!(matches!(later, Err(SpawnError::Cancelled)));
    drop(holder.stdin.take());
    assert_eq!(within(holder.child.wait()).await, ChildExitStatus::Exited(0));
    assert!(!marker.exists());
}
