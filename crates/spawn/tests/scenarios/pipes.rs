//! Processes on pipes: streams, exit codes and signals.

use spawn::{ChildExitStatus, ChildIo, ReadOutcome, Signal, SpawnCommand, Spawned, Stdio, WriteOutcome};

use crate::support::{World, command, read_all, read_until, sh, until, with_stdin, within, write_all};

#[tokio::test]
async fn a_mebibyte_written_to_the_stdin_of_cat_comes_back_on_its_stdout() {
    let world = World::new();
    let mut cat = world.start(&with_stdin(command(["cat"])));
    let stdin = cat.stdin.take().unwrap();
    let text = "0123456789abcdef".repeat(64 * 1024);
    let (_, read) = tokio::join!(
        async move {
            write_all(&stdin, text.as_bytes()).await;
        },
        read_all(&cat.stdout)
    );
    assert_eq!(read.len(), 1 << 20);
    assert!(read.ends_with("abcdef"));
    assert_eq!(cat.child.wait().await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn stdout_and_stderr_are_separate() {
    let done = World::new().run(&sh("echo out; echo err >&2")).await;
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_report_has_a_pipe_of_its_own() {
    let world = World::new();
    let script = "echo noise; echo more >&2; exec >&- 2>&-; read line || echo reported >/proc/self/fd/93";
    let Spawned { child, io } =
        world.spawn(&SpawnCommand { stdio: Stdio::Report { descriptor: 93 }, ..sh(script) }).unwrap();
    let ChildIo::Report(report) = io else { panic!("not a report") };
    assert_eq!(read_all(&report).await, "reported\n");
    assert_eq!(child.wait().await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn a_child_with_null_stdin_reads_the_end_of_its_input() {
    let done = World::new().run(&command(["cat"])).await;
    assert_eq!((done.stdout.as_str(), done.status.code()), ("", 0));
}

#[tokio::test]
async fn exit_codes_and_signals_are_reported() {
    let world = World::new();
    assert_eq!(world.run(&sh("exit 7")).await.status, ChildExitStatus::Exited(7));
    let killed = world.run(&sh("kill -TERM $$")).await.status;
    assert_eq!(killed, ChildExitStatus::Signaled(15));
    assert_eq!(killed.code(), 143);
}

#[tokio::test]
async fn a_wait_can_be_cancelled_and_repeated() {
    let world = World::new();
    let mut cat = world.start(&with_stdin(command(["cat"])));
    tokio::select! {
        biased;
        status = cat.child.wait() => panic!("ended with {status:?}"),
        () = std::future::ready(()) => {}
    }
    drop(cat.stdin.take());
    assert_eq!(within(cat.child.wait()).await, ChildExitStatus::Exited(0));
    assert_eq!(within(cat.child.wait()).await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn a_signal_to_the_group_reaches_the_leader_and_signals_after_the_exit_do_nothing() {
    let world = World::new();
    let tree = world.start(&sh("sleep 1000 & trap 'echo caught; exit 3' INT; echo ready; wait"));
    read_until(&tree.stdout, "ready").await;
    tree.child.signal_group(Signal::INT).unwrap();
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Exited(3));
    tree.child.signal_group(Signal::INT).unwrap();
    tree.child.signal(Signal::KILL).unwrap();
    world.kill_tree(&tree);
}

#[tokio::test]
async fn a_signal_can_go_to_the_leader_alone() {
    let world = World::new();
    let tree = world.start(&sh("sleep 1000 & echo $!; wait"));
    let sleeper = read_until(&tree.stdout, "\n").await.trim().parse().unwrap();
    tree.child.signal(Signal::KILL).unwrap();
    assert_eq!(within(tree.child.wait()).await, ChildExitStatus::Signaled(9));
    assert!(crate::support::is_alive(sleeper));
    world.kill_tree(&tree);
}

#[tokio::test]
async fn a_closed_stdin_is_noticed() {
    let world = World::new();
    let tree = world.start(&with_stdin(sh("exec <&-; echo closed; exec sleep 1000")));
    let stdin = tree.stdin.as_ref().unwrap();
    read_until(&tree.stdout, "closed").await;
    assert!(stdin.reader_gone());
    within(stdin.writable()).await;
    assert_eq!(stdin.try_write(b"x").unwrap(), WriteOutcome::Closed);
    world.kill_tree(&tree);
}

#[tokio::test]
async fn a_write_to_a_full_stdin_does_not_block_and_returns_closed_after_the_reader_is_killed() {
    let world = World::new();
    let tree = world.start(&with_stdin(command(["sleep", "1000"])));
    let stdin = tree.stdin.as_ref().unwrap();
    assert!(!stdin.reader_gone());
    within(stdin.writable()).await;
    let chunk = [0; 65536];
    while stdin.try_write(&chunk).unwrap() != WriteOutcome::WouldBlock {}
    world.kill_tree(&tree);
    within(stdin.writable()).await;
    assert_eq!(stdin.try_write(&chunk).unwrap(), WriteOutcome::Closed);
}

#[tokio::test]
async fn a_busy_pipe_can_be_enlarged() {
    let world = World::new();
    let tree = world.start(&sh("head -c 1000000 /dev/zero; echo done >&2"));
    tree.stdout.enlarge();
    // The child can print `done` only if a megabyte fits into the pipe, because the test does not read stdout.
    read_until(&tree.stderr, "done").await;
    until("the whole output can be read", || tree.stdout.available() == 1_000_000);
}

#[tokio::test]
async fn output_ends_only_when_the_last_writer_is_gone() {
    let world = World::new();
    let tree = world.start(&sh("sleep 1000 & echo started"));
    read_until(&tree.stdout, "started").await;
    within(tree.child.wait()).await;
    assert_eq!(tree.stdout.try_read(&mut [0; 8]).unwrap(), ReadOutcome::WouldBlock);
    world.kill_tree(&tree);
    assert_eq!(read_all(&tree.stdout).await, "");
}

/// `held` has the child's ends of the output pipes, which the server holds open too.
#[tokio::test]
async fn output_ends_when_the_held_ends_are_dropped() {
    let world = World::new();
    let Spawned { child, io } = world.spawn(&sh("echo last words")).unwrap();
    let ChildIo::Pipes { stdout, stderr, held, .. } = io else { panic!("no pipes") };
    within(child.wait()).await;
    let mut buffer = [0; 64];
    assert_eq!(stdout.read_now(&mut buffer).unwrap(), ReadOutcome::Data("last words\n".len()));
    assert_eq!(stdout.read_now(&mut buffer).unwrap(), ReadOutcome::WouldBlock);
    assert_eq!(stderr.read_now(&mut buffer).unwrap(), ReadOutcome::WouldBlock);
    drop(held);
    assert_eq!(stdout.read_now(&mut buffer).unwrap(), ReadOutcome::End);
    assert_eq!(stderr.read_now(&mut buffer).unwrap(), ReadOutcome::End);
}

/// With 16 other children the server does not hold the child's ends open, so the output ends although `_held` exists.
#[tokio::test]
async fn with_many_children_pipes_are_not_held() {
    let world = World::new();
    let _others: Vec<_> = (0..16).map(|_| world.start(&command(["sleep", "1000"]))).collect();
    let Spawned { child, io } = world.spawn(&command(["true"])).unwrap();
    let ChildIo::Pipes { stdout, held: _held, .. } = io else { panic!("no pipes") };
    within(child.wait()).await;
    assert_eq!(stdout.read_now(&mut [0; 8]).unwrap(), ReadOutcome::End);
}
