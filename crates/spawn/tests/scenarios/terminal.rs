//! Processes on a terminal: size, input, end of file, signals and hanging up.

use spawn::{ChildExitStatus, Signal, SpawnCommand, Stdio, TerminalSize, WriteOutcome};

use crate::support::{World, command, on_pty, read_all, read_until, sh, within, write_all};

#[tokio::test]
async fn all_three_streams_are_a_terminal_of_the_given_size() {
    let size = TerminalSize { rows: 33, cols: 111 };
    let script = "test -t 0 && test -t 1 && test -t 2 && stty size";
    let world = World::new();
    let (child, pty) = world.start_on_pty(&SpawnCommand { stdio: Stdio::Pty(size), ..sh(script) });
    assert_eq!(read_all(&pty.reader()).await, "33 111\r\n");
    assert_eq!(child.wait().await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn the_terminal_is_the_controlling_terminal_of_the_child() {
    let world = World::new();
    let (_child, pty) = world.start_on_pty(&on_pty(sh("tty; echo works >/dev/tty")));
    let output = read_all(&pty.reader()).await;
    assert!(output.starts_with("/dev/pts/"), "{output}");
    assert!(output.ends_with("works\r\n"), "{output}");
}

#[tokio::test]
async fn ctrl_c_interrupts() {
    let world = World::new();
    let (child, pty) = world.start_on_pty(&on_pty(sh("echo ready; exec sleep 1000")));
    read_until(&pty.reader(), "ready").await;
    write_all(&pty.writer(), b"\x03").await;
    assert_eq!(within(child.wait()).await, ChildExitStatus::Signaled(2));
}

#[tokio::test]
async fn the_eof_byte_ends_input() {
    let world = World::new();
    let (child, pty) = world.start_on_pty(&on_pty(command(["cat"])));
    assert_eq!(pty.eof_byte(), 4);
    write_all(&pty.writer(), &[b'h', b'i', b'\n', pty.eof_byte()]).await;
    assert_eq!(read_all(&pty.reader()).await, "hi\r\nhi\r\n");
    assert_eq!(child.wait().await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn eof_byte_returns_the_byte_that_the_child_has_chosen() {
    let world = World::new();
    let (child, pty) = world.start_on_pty(&on_pty(sh("stty eof ^B; echo ready; exec cat")));
    read_until(&pty.reader(), "ready").await;
    assert_eq!(pty.eof_byte(), 2);
    write_all(&pty.writer(), &[2]).await;
    assert_eq!(within(child.wait()).await, ChildExitStatus::Exited(0));
}

#[tokio::test]
async fn a_resize_sends_sigwinch() {
    let world = World::new();
    let script = "trap 'stty size; exit' WINCH; echo ready; while :; do sleep 0.01; done";
    let (child, pty) = world.start_on_pty(&on_pty(sh(script)));
    read_until(&pty.reader(), "ready").await;
    pty.resize(TerminalSize { rows: 50, cols: 132 }).unwrap();
    read_until(&pty.reader(), "50 132").await;
    within(child.wait()).await;
}

#[tokio::test]
async fn a_signal_reaches_the_foreground_group() {
    let world = World::new();
    // `signal_foreground` sends SIGINT through the terminal. A terminal cannot send SIGUSR1, so the spawner sends it
    // to the group itself.
    for signal in [Signal::INT, Signal::USR1] {
        let job = "trap 'echo caught; exit 9' INT USR1; echo ready; while :; do sleep 0.01; done";
        let script = format!("set -m; sh -c \"{job}\"; exit $?");
        let (child, pty) = world.start_on_pty(&on_pty(command(["bash", "-c", &script])));
        read_until(&pty.reader(), "ready").await;
        pty.signal_foreground(signal).unwrap();
        read_until(&pty.reader(), "caught").await;
        assert_eq!(within(child.wait()).await, ChildExitStatus::Exited(9));
    }
}

#[tokio::test]
async fn on_a_terminal_without_processes_writing_returns_closed_and_signalling_does_nothing() {
    let world = World::new();
    let (child, pty) = world.start_on_pty(&on_pty(sh("exit 0")));
    within(child.wait()).await;
    assert_eq!(read_all(&pty.reader()).await, "");
    let writer = pty.writer();
    assert!(writer.reader_gone());
    within(writer.writable()).await;
    assert_eq!(writer.try_write(b"x").unwrap(), WriteOutcome::Closed);
    pty.signal_foreground(Signal::INT).unwrap();
}

#[tokio::test]
async fn all_output_comes_before_the_end() {
    let world = World::new();
    let (_child, pty) = world.start_on_pty(&on_pty(sh("stty -opost; seq 20000")));
    let read = read_all(&pty.reader()).await;
    assert!(read.ends_with("\n20000\n"), "{} bytes", read.len());
    assert_eq!(read.lines().count(), 20000);
}

#[tokio::test]
async fn dropping_the_terminal_hangs_up() {
    let world = World::new();
    let (child, pty) = world.start_on_pty(&on_pty(sh("echo ready; exec sleep 1000")));
    let reader = pty.reader();
    read_until(&reader, "ready").await;
    drop((pty, reader));
    assert_eq!(within(child.wait()).await, ChildExitStatus::Signaled(1));
}
