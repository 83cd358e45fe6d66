//! A spawner in a process that has other work too: the spawner kills and reaps what it has started, and nothing else.

use std::process::Command;

use spawn::HostProcess;

use crate::support::{TIMEOUT, World, block_on, command, is_alive, read_pids, sh, until, within, zombie_children};

fn world_in_shared_process() -> World {
    World::in_host(HostProcess::shared())
}

#[tokio::test]
async fn daemons_are_killed_after_their_leader_has_ended() {
    let world = world_in_shared_process();
    let tree = world.start(&sh("setsid sh -c 'sleep 1000 & echo $!'; sleep 1000 & echo $!; exit"));
    let pids = read_pids(&tree.stdout, 2).await;
    within(tree.child.wait()).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    world.kill_tree(&tree);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

/// A tag is the limit `RLIMIT_RTTIME` of a process, so `prlimit` can remove it.
#[tokio::test]
async fn an_orphan_that_has_removed_its_tag_is_killed_while_its_leader_runs() {
    let world = world_in_shared_process();
    let tree = world.start(&sh("prlimit --rttime=unlimited sh -c 'sleep 1000 & echo $!'; exec sleep 1000"));
    let pids = read_pids(&tree.stdout, 1).await;
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn a_dropped_child_is_reaped() {
    let world = world_in_shared_process();
    drop(world.start(&sh("exit 0")));
    until("the child is a zombie", || !zombie_children().is_empty());
    world.spawner.reap_orphans();
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

#[tokio::test]
async fn children_of_other_code_are_neither_killed_nor_reaped() {
    let world = world_in_shared_process();
    let mut ended = Command::new("setsid").args(["sh", "-c", "exit 9"]).spawn().unwrap();
    until("the child is a zombie", || zombie_children() == [ended.id()]);
    let mut running = Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap();
    until("the child leads a session", || {
        crate::support::stat_field(running.id(), 4) == Some(running.id().to_string())
    });
    let ours = world.start(&command(["sleep", "1000"]));
    world.spawner.reap_orphans();
    block_on(world.spawner.kill_all(TIMEOUT)).unwrap();
    assert!(!is_alive(ours.child.pid()) && is_alive(running.id()));
    assert_eq!(ended.wait().unwrap().code(), Some(9));
    running.kill().unwrap();
    running.wait().unwrap();
}
