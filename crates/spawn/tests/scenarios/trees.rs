//! Killing one tree, whatever its processes do to escape: other kernel sessions (`setsid`), daemons, ignored signals,
//! removed tags, fork bombs. A tag is the limit `RLIMIT_RTTIME` of a process. Descendants inherit it, and the
//! commands `prlimit` and `ulimit -R` can remove it.

use std::time::Duration;

use spawn::{ChildExitStatus, ChildIo, Signal, SpawnCommand, SurvivalReason};
use tempfile::TempDir;

use crate::support::{TIMEOUT, block_on, within, write_all, zombie_children};
use crate::support::{
    World, command, is_alive, on_pty, perl, read_all, read_pids, read_until, sh, spawn_tagged, stat_field, until,
};

/// Starts the command, reads the process ids that it prints, kills the tree, and checks in `/proc` that these processes are gone.
async fn assert_kill_ends_tree(command: &SpawnCommand, pid_count: usize) {
    let world = World::new();
    let tree = world.start(command);
    let pids = read_pids(&tree.stdout, pid_count).await;
    for pid in &pids {
        assert!(is_alive(*pid), "{pid} runs before the kill");
    }
    world.kill_tree(&tree);
    for pid in &pids {
        assert!(!is_alive(*pid), "{pid} still runs after the kill");
    }
    within(tree.child.wait()).await;
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

#[tokio::test]
async fn a_single_process_is_killed() {
    assert_kill_ends_tree(&sh("echo $$; exec sleep 1000"), 1).await;
}

#[tokio::test]
async fn background_jobs_that_hold_the_pipes_are_killed() {
    let world = World::new();
    let tree = world.start(&sh("for i in 1 2 3; do sleep 1000 & done; echo ready"));
    read_until(&tree.stdout, "ready").await;
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Exited(0));
    world.kill_tree(&tree);
    assert_eq!(read_all(&tree.stdout).await, "");
    assert_eq!(read_all(&tree.stderr).await, "");
}

#[tokio::test]
async fn a_process_in_another_session_is_killed() {
    assert_kill_ends_tree(&sh("setsid sh -c 'echo $$; exec sleep 1000' & echo $$; wait"), 2).await;
}

/// A Perl function that starts a daemon. The daemon prints its process id and leaves its parent, its session and its
/// standard streams.
const DAEMON: &str = r#"
    use POSIX; $| = 1;
    sub daemon {
        return if fork; setsid(); exit if fork; setsid();
        print "$$\n"; open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
        chdir "/"; sleep 1000; exit;
    }
"#;

#[tokio::test]
async fn daemons_are_killed_while_their_leader_runs() {
    assert_kill_ends_tree(&perl(&format!("{DAEMON} daemon() for 1..3; print \"$$\\n\"; sleep 1000")), 4).await;
}

#[tokio::test]
async fn daemons_are_killed_after_their_leader_has_ended() {
    let world = World::new();
    let tree = world.start(&perl(&format!("{DAEMON} daemon() for 1..3;")));
    let pids = read_pids(&tree.stdout, 3).await;
    within(tree.child.wait()).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    world.kill_tree(&tree);
    assert!(!pids.iter().any(|pid| is_alive(*pid)));
}

#[tokio::test]
async fn processes_that_ignore_signals_are_killed() {
    assert_kill_ends_tree(&sh("trap '' TERM HUP INT QUIT; sh -c 'echo $$; sleep 1000' & echo $$; wait"), 2).await;
}

#[tokio::test]
async fn stopped_processes_are_killed() {
    let world = World::new();
    let tree = world.start(&sh("sh -c 'echo $$; kill -STOP $$' & wait"));
    let pids = read_pids(&tree.stdout, 1).await;
    until("the process is stopped", || stat_field(pids[0], 1).as_deref() == Some("T"));
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn a_process_that_has_removed_its_tag_is_killed() {
    let untagged = "prlimit --rttime=unlimited sh -c 'echo $$; exec sleep 1000'";
    assert_kill_ends_tree(&sh(&format!("{untagged} & echo $$; wait")), 2).await;
    let untagged = "ulimit -R unlimited; sh -c 'echo $$; sleep 1000' & echo $$; wait";
    assert_kill_ends_tree(&command(["bash", "-c", untagged]), 2).await;
}

#[tokio::test]
async fn an_orphan_that_has_removed_its_tag_is_killed() {
    let world = World::new();
    let tree = world.start(&sh("prlimit --rttime=unlimited sh -c 'sleep 1000 & echo $!'; exit 0"));
    let pids = read_pids(&tree.stdout, 1).await;
    within(tree.child.wait()).await;
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn kill_all_kills_an_orphan_that_has_removed_its_tag_and_left_its_session() {
    let world = World::new();
    let tree = world.start(&sh("prlimit --rttime=unlimited setsid sh -c 'sleep 1000 & echo $!'; exit 0"));
    let pids = read_pids(&tree.stdout, 1).await;
    within(tree.child.wait()).await;
    block_on(world.spawner.kill_all(TIMEOUT)).unwrap();
    assert!(!is_alive(pids[0]));
}

#[tokio::test]
async fn jobs_of_an_interactive_shell_are_killed() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("pids");
    let world = World::new();
    let tag = world.tags.next();
    let mut shell = on_pty(command(["bash", "--norc", "-i"]));
    shell.env.push(("PS1".into(), "prompt>".into()));
    let spawned = spawn_tagged(&world.spawner, &shell, tag).unwrap();
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
    block_on(world.spawner.kill_tree(tag, TIMEOUT)).unwrap();
    assert!(!pids().iter().any(|pid| is_alive(*pid)));
}

/// A fork bomb: each process forks every 20 ms, and each child appends a byte to the file. No process forks when the
/// file has 1,500 bytes or the bomb is 60 s old.
const FORK_BOMB: &str = r#"
    use POSIX;
    my $file = shift; $SIG{CHLD} = "IGNORE"; my $start = time;
    while (-s $file < 1500 && time - $start < 60) {
        if (!fork) { setsid(); open(my $f, ">>", $file); syswrite($f, "x"); }
        select(undef, undef, undef, 0.02);
    }
    sleep 60;
"#;

#[tokio::test]
async fn a_fork_bomb_is_killed() {
    let directory = TempDir::new().unwrap();
    let count_file = directory.path().join("count");
    std::fs::write(&count_file, "").unwrap();
    let world = World::new();
    let tree = world.start(&command(["/usr/bin/perl", "-e", FORK_BOMB, count_file.to_str().unwrap()]));
    let forks = || std::fs::metadata(&count_file).unwrap().len();
    until("500 processes were forked", || forks() >= 500);
    world.kill_tree(&tree);
    let after_kill = forks();
    assert_eq!(read_all(&tree.stdout).await, "", "no process has the pipe open");
    assert_eq!(forks(), after_kill);
    within(tree.child.wait()).await;
    assert_eq!(zombie_children(), Vec::<u32>::new());
}

/// Forks, exits and continues in the child, again and again. Each step leaves a zombie to this process, so the number of steps is limited.
const FORK_AND_EXIT: &str = r#"
    use POSIX; $| = 1; print "started\n";
    for (1..10000) { my $pid = fork; exit if $pid; setsid(); }
    print "finished\n";
"#;

#[tokio::test]
async fn a_process_that_forks_and_exits_all_the_time_is_killed() {
    let world = World::new();
    let tree = world.start(&perl(FORK_AND_EXIT));
    read_until(&tree.stdout, "started").await;
    within(tree.child.wait()).await;
    world.kill_tree(&tree);
    assert_eq!(read_all(&tree.stdout).await, "", "no process has the pipe open");
}

#[tokio::test]
async fn a_tree_whose_leader_is_a_zombie_is_killed() {
    let world = World::new();
    let tree = world.start(&sh("setsid sleep 1000 & echo $!"));
    let pids = read_pids(&tree.stdout, 1).await;
    until("the leader is a zombie", || zombie_children() == [tree.child.pid()]);
    world.kill_tree(&tree);
    assert!(!is_alive(pids[0]));
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Exited(0), "the kill has not reaped the leader");
}

#[tokio::test]
async fn a_tree_can_be_killed_twice() {
    let world = World::new();
    let tree = world.start(&sh("exec sleep 1000"));
    world.kill_tree(&tree);
    world.kill_tree(&tree);
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Signaled(9));
    world.kill_tree(&tree);
}

#[tokio::test]
async fn signal_all_reaches_every_process_of_a_tree() {
    let world = World::new();
    let script = "setsid sh -c 'trap \"echo bye; exit\" TERM; echo ready; while :; do sleep 0.01; done' & wait";
    let tree = world.start(&sh(script));
    read_until(&tree.stdout, "ready").await;
    block_on(world.spawner.signal_all(Signal::TERM)).unwrap();
    read_until(&tree.stdout, "bye").await;
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Signaled(15));
}

#[tokio::test]
async fn a_kill_with_a_timeout_of_zero_reports_the_survivors_if_there_are_any() {
    let world = World::new();
    let tree = world.start(&sh("exec sleep 1000"));
    // The kill still succeeds if the process has ended before the kill lists all processes for the second time.
    if let Err(survivors) = block_on(world.spawner.kill_tree(tree.tag, Duration::ZERO)) {
        assert!(matches!(survivors.reason, SurvivalReason::TimedOut), "{survivors}");
        assert_eq!(survivors.pids, [tree.child.pid()]);
    }
    world.kill_tree(&tree);
}
