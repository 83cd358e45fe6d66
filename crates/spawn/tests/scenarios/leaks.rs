//! Starts and exits leave no descriptor open and no zombie, children of other code are not reaped, and without free
//! descriptors nothing is started.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{World, block_on, command, on_pty, read_all, sh, until, with_stdin, within, zombie_children};

fn open_descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

#[tokio::test]
async fn two_hundred_starts_leave_no_descriptor_and_no_zombie() {
    let world = World::new();
    world.run(&command(["true"])).await;
    let before = open_descriptors();
    for round in 0..200 {
        match round % 4 {
            0 => assert_eq!(world.run(&command(["true"])).await.status.code(), 0),
            1 => assert!(world.spawn(&command(["no-such-program"])).is_err()),
            2 => assert!(world.spawn(&on_pty(command(["/no/such/program"]))).is_err()),
            _ => {
                let (child, pty) = world.start_on_pty(&on_pty(command(["true"])));
                read_all(&pty.reader()).await;
                child.wait().await;
            }
        }
    }
    assert_eq!(open_descriptors(), before);
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

#[tokio::test]
async fn orphans_that_ended_are_reaped_and_leaders_are_not() {
    let world = World::new();
    let leader = world.start(&sh("exit 4"));
    let pid = leader.child.pid();
    until("the leader is a zombie", || zombie_children() == [pid]);
    // `cat` becomes a child of this process when `sh` ends, and ends when its stdin does.
    let mut parent = world.start(&with_stdin(sh("exec 3<&0; cat <&3 & echo started")));
    crate::support::read_until(&parent.stdout, "started").await;
    within(parent.child.wait()).await;
    drop(parent.stdin.take());
    until("both are zombies", || zombie_children().len() == 2);
    world.spawner.reap_orphans();
    assert_eq!(zombie_children(), [pid]);
    assert_eq!(leader.child.wait().await.code(), 4);
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_dropped_child_is_reaped_as_an_orphan() {
    let world = World::new();
    drop(world.start(&sh("exit 0")));
    until("the child is a zombie", || !zombie_children().is_empty());
    world.spawner.reap_orphans();
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

#[tokio::test]
async fn children_that_other_code_has_started_are_not_reaped() {
    let world = World::new();
    let mut other = std::process::Command::new("/bin/sh").args(["-c", "exit 9"]).spawn().unwrap();
    until("the child is a zombie", || zombie_children() == [other.id()]);
    world.spawner.reap_orphans();
    block_on(world.spawner.kill_all(crate::support::TIMEOUT)).unwrap();
    assert_eq!(other.wait().unwrap().code(), Some(9));
}

/// Uses up all descriptors and frees them one by one until a start succeeds. Before that, a missing program must fail with the same error
/// as an existing one, because neither is executed.
#[tokio::test]
async fn nothing_is_executed_without_a_descriptor_for_the_pidfd() {
    let world = World::new();
    world.run(&command(["true"])).await;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum }).unwrap();
    let mut fillers = Vec::new();
    while let Ok(filler) = fs::File::open("/dev/null") {
        fillers.push(filler);
    }
    let started = loop {
        fillers.pop().expect("a start succeeds with this many free descriptors");
        match world.spawn(&with_stdin(command(["/bin/true"]))) {
            Ok(started) => break started,
            Err(refusal) => {
                let missing = world.spawn(&with_stdin(command(["/no/such/program"]))).unwrap_err();
                assert_eq!(missing.to_string(), refusal.to_string());
            }
        }
    };
    assert_eq!(within(started.child.wait()).await.code(), 0);
}
