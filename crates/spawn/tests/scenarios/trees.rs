//! The torture set: whatever a process does to get away, its tree is found and ended.

use std::time::Duration;

use spawn::{ChildExitStatus, ChildIo, Signal, SpawnCommand, SurvivalReason};
use tempfile::TempDir;

use crate::support::{PATIENCE, end, within, write_all, zombies_of_ours};
use crate::support::{
    World, command, is_alive, on_pty, perl, read_all, read_pids, read_until, sh, start, stat_field, until,
};

/// Starts it, reads the pids it prints, kills the tree, and looks for itself whether they are gone.
async fn assert_tree_ends(command: &SpawnCommand, pids: usize) {
    let world = World::new();
    let tree = world.start(command);
    let pids = read_pids(&tree.stdout, pids).await;
    for pid in &pids {
        assert!(is_alive(*pid), "{pid} runs before");
    }
    world.kill_tree(&tree);
    for pid in &pids {
        assert!(!is_alive(*pid), "{pid} is gone");
    }
    within(tree.child.wait()).await;
    assert_eq!(zombies_of_ours(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_single_process() {
    assert_tree_ends(&sh("echo $$; exec sleep 1000"), 1).await;
}

#[tokio::test]
async fn background_jobs_that_hold_the_pipes() {
    let world = World::new();
    let tree = world.start(&sh("for i in 1 2 3; do sleep 1000 & done; echo ready"));
    read_until(&tree.stdout, "ready").await;
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Exited(0));
    world.kill_tree(&tree);
    assert_eq!(read_all(&tree.stdout).await, "");
    assert_eq!(read_all(&tree.stderr).await, "");
}

#[tokio::test]
async fn another_session() {
    assert_tree_ends(&sh("setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait"), 2).await;
}

/// Detached from everything: parents, session, terminal, streams.
const DAEMON: &str = r#"
    use POSIX; $| = 1;
    sub daemon {
        return if fork; setsid(); exit if fork; setsid();
        print "$$\n"; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
        chdir "/"; sleep 1000; exit;
    }
"#;

#[tokio::test]
async fn daemons_of_a_living_leader() {
    assert_tree_ends(&perl(&format!("{DAEMON} daemon() for 1..3; print \"$$\\n\"; sleep 1000")), 4).await;
}

#[tokio::test]
async fn daemons_of_a_leader_that_has_ended() {
    let world = World::new();
    let tree = world.start(&perl(&format!("{DAEMON} daemon() for 1..3;")));
    let pids = read_pids(&tree.stdout, 3).await;
    within(tree.child.wait()).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    world.kill_tree(&tree);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn those_that_ignore_signals() {
    assert_tree_ends(&sh("trap '' TERM HUP INT QUIT; sh -c 'echo $$; sleep 1000' & echo $$; wait"), 2).await;
}

#[tokio::test]
async fn those_that_are_stopped() {
    let world = World::new();
    let tree = world.start(&sh("sh -c 'echo $$; kill -STOP $$' & wait"));
    let pids = read_pids(&tree.stdout, 1).await;
    until("it is stopped", || stat_field(pids[0], 1).as_deref() == Some("T"));
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn one_that_has_thrown_away_its_tag() {
    let untagged = "prlimit --rttime=unlimited sh -c 'echo $$; exec sleep 1000'";
    assert_tree_ends(&sh(&format!("{untagged} & echo $$; wait")), 2).await;
    assert_tree_ends(&command(["bash", "-c", "ulimit -R unlimited; sh -c 'echo $$; sleep 1000' & echo $$; wait"]), 2)
        .await;
}

#[tokio::test]
async fn an_orphan_that_has_thrown_away_its_tag() {
    let world = World::new();
    let tree = world.start(&sh("prlimit --rttime=unlimited sh -c 'sleep 1000 & echo $!'; exit 0"));
    let pids = read_pids(&tree.stdout, 1).await;
    within(tree.child.wait()).await;
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn everything_includes_one_that_has_thrown_away_tag_and_session() {
    let world = World::new();
    let tree = world.start(&sh("prlimit --rttime=unlimited setsid sh -c 'sleep 1000 & echo $!'; exit 0"));
    let pids = read_pids(&tree.stdout, 1).await;
    within(tree.child.wait()).await;
    end(world.spawner.kill_all(PATIENCE)).unwrap();
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn jobs_of_an_interactive_shell() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pids");
    let world = World::new();
    let tag = world.tags.next();
    let mut shell = on_pty(command(["bash", "--norc", "-i"]));
    shell.env.push(("PS1".into(), "prompt>".into()));
    let spawned = start(&world.spawner, &shell, tag).unwrap();
    let ChildIo::Pty { pty, .. } = spawned.io else { panic!("no terminal") };
    read_until(&pty.reader(), "prompt>").await;
    let jobs = "sleep 1000 & echo $!; nohup setsid sh -c 'echo $$; exec sleep 1000' & disown -a";
    write_all(&pty.writer(), format!("{{ {jobs}; }} >{}\n", file.display()).as_bytes()).await;
    let pids = || -> Vec<u32> {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.parse().ok()).collect()
    };
    until("both jobs run", || pids().len() == 2);
    assert!(pids().iter().all(|pid| is_alive(*pid)));
    end(world.spawner.kill_tree(tag, PATIENCE)).unwrap();
    assert!(!pids().iter().any(|pid| is_alive(*pid)));
}

/// Each process forks every few milliseconds until the file has a byte for each of 1,500 forks.
const BOMB: &str = r#"
    use POSIX;
    my $file = shift; $SIG{CHLD} = "IGNORE"; my $start = time;
    while (-s $file < 1500 && time - $start < 60) {
        if (!fork) { setsid(); open(my $f, ">>", $file); syswrite($f, "x"); }
        select(undef, undef, undef, 0.02);
    }
    sleep 60;
"#;

#[tokio::test]
async fn a_fork_bomb() {
    let directory = TempDir::new().unwrap();
    let count = directory.path().join("count");
    std::fs::write(&count, "").unwrap();
    let world = World::new();
    let tree = world.start(&command(["/usr/bin/perl", "-e", BOMB, count.to_str().unwrap()]));
    let forks = || std::fs::metadata(&count).unwrap().len();
    until("500 processes run", || forks() >= 500);
    world.kill_tree(&tree);
    let at_the_end = forks();
    assert_eq!(read_all(&tree.stdout).await, "", "nobody holds the pipe");
    assert_eq!(forks(), at_the_end);
    within(tree.child.wait()).await;
    assert_eq!(zombies_of_ours(), Vec::<u32>::new());
}

/// Never the same process for longer than it takes to fork. Each leaves a zombie to us, so that it must not go on for ever.
const HOPPER: &str = r#"
    use POSIX; $| = 1; print "hopping\n";
    for (1..10000) { my $pid = fork; exit if $pid; setsid(); }
    print "arrived\n";
"#;

#[tokio::test]
async fn one_that_forks_and_exits_all_the_time() {
    let world = World::new();
    let tree = world.start(&perl(HOPPER));
    read_until(&tree.stdout, "hopping").await;
    within(tree.child.wait()).await;
    world.kill_tree(&tree);
    assert_eq!(read_all(&tree.stdout).await, "", "nobody holds the pipe");
}

#[tokio::test]
async fn the_rest_of_a_tree_whose_leader_waits_to_be_reaped() {
    let world = World::new();
    let tree = world.start(&sh("setsid sleep 1000 & echo $!"));
    let pids = read_pids(&tree.stdout, 1).await;
    until("the leader is a zombie", || zombies_of_ours() == [tree.child.pid()]);
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Exited(0), "the status is still there");
}

#[tokio::test]
async fn killing_twice_is_fine() {
    let world = World::new();
    let tree = world.start(&sh("exec sleep 1000"));
    world.kill_tree(&tree);
    world.kill_tree(&tree);
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Signaled(9));
    world.kill_tree(&tree);
}

#[tokio::test]
async fn all_trees_can_be_asked_to_end() {
    let world = World::new();
    let script = "setsid sh -c 'trap \"echo bye; exit\" TERM; echo ready; while :; do sleep 0.01; done' & wait";
    let tree = world.start(&sh(script));
    read_until(&tree.stdout, "ready").await;
    end(world.spawner.signal_all(Signal::TERM)).unwrap();
    read_until(&tree.stdout, "bye").await;
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Signaled(15));
}

#[tokio::test]
async fn a_tree_that_gets_no_time_is_told() {
    let world = World::new();
    let tree = world.start(&sh("exec sleep 1000"));
    if let Err(survivors) = end(world.spawner.kill_tree(tree.tag, Duration::ZERO)) {
        assert!(matches!(survivors.reason, SurvivalReason::TimedOut), "{survivors}");
        assert_eq!(survivors.pids, [tree.child.pid()]);
    }
    world.kill_tree(&tree);
}
