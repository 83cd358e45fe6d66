//! Several trees at once: killing one tree, the trees of one client session, or the trees of one spawner leaves the
//! other trees alone.

use std::collections::HashSet;
use std::fs;
use std::thread;

use spawn::{Spawner, Tag};

use crate::support::{TIMEOUT, World, block_on, dedicate_process, is_alive, read_pids, sh, spawn_tagged, within};

/// Three processes in three kernel sessions (`setsid`). Prints the process id of each.
const TREE: &str = "setsid sleep 1000 & echo $!; setsid sleep 1000 & echo $!; echo $$; exec sleep 1000";

#[tokio::test]
async fn killing_one_tree_leaves_the_other() {
    let world = World::new();
    let (first, second) = (world.start(&sh(TREE)), world.start(&sh(TREE)));
    let (first_pids, second_pids) = (read_pids(&first.stdout, 3).await, read_pids(&second.stdout, 3).await);
    world.kill_tree(&first);
    assert!(!first_pids.iter().any(|pid| is_alive(*pid)));
    assert!(second_pids.iter().all(|pid| is_alive(*pid)));
    world.kill_tree(&second);
    assert!(!second_pids.iter().any(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn killing_one_client_session_leaves_the_other() {
    let world = World::new();
    let other_session = world.spawner.session_tags();
    let tree = world.start(&sh(TREE));
    let pids = read_pids(&tree.stdout, 3).await;
    let second = world.start(&sh(TREE));
    let second_pids = read_pids(&second.stdout, 3).await;
    let other_process = spawn_tagged(&world.spawner, &sh("exec sleep 1000"), other_session.next()).unwrap();
    block_on(world.spawner.kill_session(&world.tags, TIMEOUT)).unwrap();
    assert!(!pids.iter().chain(&second_pids).any(|pid| is_alive(*pid)));
    assert!(is_alive(other_process.child.pid()));
    block_on(world.spawner.kill_all(TIMEOUT)).unwrap();
    assert_eq!(within(other_process.child.wait()).await.code(), 137);
}

#[tokio::test]
async fn kill_all_of_one_spawner_leaves_the_trees_of_another() {
    let world = World::new();
    let neighbour = Spawner::new(dedicate_process(), None).unwrap();
    let theirs = spawn_tagged(&neighbour, &sh("exec sleep 1000"), neighbour.session_tags().next()).unwrap();
    let ours = world.start(&sh("exec sleep 1000"));
    block_on(world.spawner.kill_all(TIMEOUT)).unwrap();
    assert!(!is_alive(ours.child.pid()));
    assert!(is_alive(theirs.child.pid()));
    block_on(neighbour.kill_all(TIMEOUT)).unwrap();
    assert!(!is_alive(theirs.child.pid()));
}

/// The tag of a process: its soft limit of realtime CPU time, as `/proc` shows it.
fn tag_of(pid: u32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("the process exists");
    let line =
        limits.lines().find(|line| line.starts_with("Max realtime timeout")).expect("the kernel shows this limit");
    line.split_whitespace().nth(3).expect("the line has a soft limit").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_processes_that_ten_threads_start_get_different_tags_and_can_be_killed_by_them() {
    let world = World::new();
    let runtime = tokio::runtime::Handle::current();
    let own_tag = tag_of(std::process::id());
    let mut children: Vec<(Tag, spawn::Spawned)> = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..10)
            .map(|_| {
                scope.spawn(|| {
                    let _runtime = runtime.enter();
                    let start_one = |_| {
                        let tag = world.tags.next();
                        (tag, spawn_tagged(&world.spawner, &sh("exec sleep 1000"), tag).unwrap())
                    };
                    (0..5).map(start_one).collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            children.extend(thread.join().unwrap());
        }
    });
    assert_eq!(tag_of(std::process::id()), own_tag, "the limit of this process has not changed");
    let tags: HashSet<String> = children.iter().map(|(_, spawned)| tag_of(spawned.child.pid())).collect();
    assert_eq!(tags.len(), 50);
    for (tag, spawned) in &children {
        block_on(world.spawner.kill_tree(*tag, TIMEOUT)).unwrap();
        assert!(!is_alive(spawned.child.pid()));
        within(spawned.child.wait()).await;
    }
}
