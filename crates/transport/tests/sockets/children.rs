//! Child processes as peers: messages over their pipes, lines of their stderr, and that no process of the child's
//! process group is left after the [`ChildGuard`] is dropped.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::send;
use transport::{ChildCommand, ChildGuard, ChildSpawnError, MessageLimits, MessageStream, ReadEvent, spawn_child};

fn shell(script: &str) -> ChildCommand {
    ChildCommand { program: "sh".into(), args: vec!["-c".into(), script.into()], ..ChildCommand::default() }
}

fn start(script: &str) -> (MessageStream, ChildGuard) {
    spawn(&shell(script)).unwrap()
}

fn spawn(command: &ChildCommand) -> Result<(MessageStream, ChildGuard), ChildSpawnError> {
    spawn_child(command, MessageLimits::default(), |_| {})
}

fn pid(stream: &MessageStream) -> u32 {
    stream.peer.to_string().strip_prefix("child ").expect("the label of a child has its pid").parse().unwrap()
}

/// Waits for the next message and returns it as text.
async fn next_line(stream: &mut MessageStream) -> String {
    match stream.reader.next().await.unwrap() {
        ReadEvent::Message(line) => String::from_utf8(line.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Whether a process runs, or is a zombie that this process has to reap. A zombie with another parent does not count.
fn process_exists(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
    state != "Z" || parent == std::process::id().to_string()
}

/// Waits until none of the processes exists. Blocks the thread.
fn block_until_gone(pids: &[u32]) {
    let started = Instant::now();
    while pids.iter().any(|pid| process_exists(*pid)) {
        assert!(started.elapsed() < Duration::from_secs(30), "still running or not reaped: {pids:?}");
        // sleep: the interval between two reads of /proc
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until none of the processes exists.
async fn wait_until_gone(pids: &[u32]) {
    let pids = pids.to_vec();
    tokio::task::spawn_blocking(move || block_until_gone(&pids)).await.unwrap();
}

#[tokio::test]
async fn messages_are_lines_on_stdin_and_stdout() {
    let command = ChildCommand { program: "cat".into(), ..ChildCommand::default() };
    let (mut stream, mut guard) = spawn(&command).unwrap();
    send(&mut stream, b"{\"id\":1}").await;
    assert_eq!(next_line(&mut stream).await, "{\"id\":1}");
    stream.writer.shutdown().await;
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    assert!(guard.wait_for_exit().await.status.unwrap().success());
    assert!(!process_exists(pid(&stream)));
}

#[tokio::test]
async fn a_dropped_writer_closes_stdin() {
    let (stream, mut guard) = start("cat");
    drop(stream);
    assert!(guard.wait_for_exit().await.status.unwrap().success());
}

#[tokio::test]
async fn a_child_gets_the_environment_and_the_working_directory_of_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let command = ChildCommand {
        env: vec![("GIVEN".into(), "yes".into()), ("HOME".into(), "/given".into())],
        env_remove: vec!["PATH".into(), "HOME".into()],
        cwd: Some(directory.path().into()),
        program: "/bin/sh".into(),
        ..shell(
            "echo \"$GIVEN $HOME ${CARGO_MANIFEST_DIR:+inherited}\"; /usr/bin/env | /bin/grep -c '^PATH='; pwd -P",
        )
    };
    let (mut stream, mut guard) = spawn(&command).unwrap();
    assert_eq!(next_line(&mut stream).await, "yes /given inherited");
    assert_eq!(next_line(&mut stream).await, "0");
    assert_eq!(next_line(&mut stream).await, directory.path().canonicalize().unwrap().to_string_lossy());
    guard.wait_for_exit().await;
}

#[tokio::test]
async fn a_failed_start_says_whether_the_program_or_the_directory_is_missing() {
    let missing = ChildCommand { program: "no-such-program-here".into(), ..ChildCommand::default() };
    let error = spawn(&missing).unwrap_err();
    assert_eq!(error.to_string(), "cannot start `no-such-program-here`: No such file or directory (os error 2)");
    let missing_directory = ChildCommand { cwd: Some("/no/such/directory".into()), ..shell("true") };
    let error = spawn(&missing_directory).unwrap_err();
    assert!(matches!(error, ChildSpawnError::NoDirectory { .. }), "{error}");
}

#[tokio::test]
async fn the_exit_of_a_child_reports_its_status_and_last_lines_of_stderr() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let lines = received.clone();
    let keep = move |line: &str| lines.lock().unwrap().push(line.to_owned());
    let script = "for n in 1 2 3 4 5 6 7 8; do echo line $n >&2; done; printf 'no route' >&2; exit 3";
    let (mut stream, mut guard) = spawn_child(&shell(script), MessageLimits::default(), keep).unwrap();
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    let exit = guard.wait_for_exit().await;
    assert_eq!(exit.status.unwrap().code(), Some(3));
    assert_eq!(
        exit.to_string(),
        "`sh` ended with exit status: 3: line 2; line 3; line 4; line 5; line 6; line 7; line 8; no route"
    );
    assert_eq!(received.lock().unwrap().len(), 9, "the callback gets every line");
    assert_eq!(guard.wait_for_exit().await, exit, "a second call returns the same value");
}

#[tokio::test]
async fn a_long_line_on_stderr_is_cut() {
    let (_stream, mut guard) = start("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo after >&2");
    let tail = guard.wait_for_exit().await.stderr_tail;
    assert_eq!((tail[0].len(), tail[1].as_str()), (1024, "after"));
}

#[tokio::test]
async fn a_process_of_another_group_with_stderr_open_does_not_delay_wait_for_exit() {
    let (mut stream, mut guard) = start("setsid sh -c 'echo $$; exec sleep 1000' & read line; echo last >&2");
    let outsider: u32 = next_line(&mut stream).await.parse().unwrap();
    stream.writer.shutdown().await;
    assert_eq!(guard.wait_for_exit().await.stderr_tail, ["last"]);
    let pid = rustix::process::Pid::from_raw(outsider.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn lines_that_are_not_json_are_delivered_unchanged_and_too_long_lines_are_reported() {
    let (mut stream, mut guard) = spawn_child(
        &shell("printf 'not json\\n\\377\\376\\n'; head -c 100000 /dev/zero; echo; echo fine"),
        MessageLimits { message_bytes: 1000 },
        |_| {},
    )
    .unwrap();
    assert_eq!(next_line(&mut stream).await, "not json");
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Message(b"\xff\xfe"[..].into()));
    assert!(matches!(stream.reader.next().await.unwrap(), ReadEvent::TooLarge { .. }));
    assert_eq!(next_line(&mut stream).await, "fine");
    guard.wait_for_exit().await;
}

#[tokio::test]
async fn dropping_the_guard_sends_sigterm_and_later_writes_fail() {
    let (mut stream, guard) =
        start("trap 'echo terminated; exit 7' TERM; echo ready; while :; do read line || :; done");
    assert_eq!(next_line(&mut stream).await, "ready");
    let started = Instant::now();
    drop(guard);
    assert_eq!(next_line(&mut stream).await, "terminated");
    wait_until_gone(&[pid(&stream)]).await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(stream.writer.write_all(b"{}\n").await.is_err());
}

#[tokio::test]
async fn a_child_that_ignores_sigterm_is_killed_with_its_group() {
    let (mut stream, guard) = start("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done");
    let pids = [pid(&stream), next_line(&mut stream).await.parse().unwrap()];
    let started = Instant::now();
    drop(guard);
    wait_until_gone(&pids).await;
    assert!((2..10).contains(&started.elapsed().as_secs()));
}

#[tokio::test]
async fn the_group_of_a_child_that_exits_is_killed() {
    let (mut stream, mut guard) = start("trap '' TERM; sleep 1000 & echo $!");
    let pids = [pid(&stream), next_line(&mut stream).await.parse().unwrap()];
    assert!(guard.wait_for_exit().await.status.unwrap().success());
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    wait_until_gone(&pids).await;
}

#[tokio::test]
async fn a_writer_that_waits_for_room_fails_when_the_guard_is_dropped() {
    let (mut stream, guard) = start("trap '' TERM; echo ready; exec sleep 1000");
    assert_eq!(next_line(&mut stream).await, "ready");
    let flood = vec![b'x'; 4 << 20];
    let mut write = Box::pin(stream.writer.write_all(&flood));
    let pending = tokio::time::timeout(Duration::from_millis(20), &mut write).await;
    assert!(pending.is_err());
    drop(guard);
    let started = Instant::now();
    assert!(write.await.is_err());
    assert!(started.elapsed() < Duration::from_secs(1));
}

#[tokio::test]
async fn a_guard_that_is_dropped_at_any_time_leaves_no_child() {
    let mut pids = Vec::new();
    for round in 0..40u64 {
        let (stream, guard) = start("sleep 1000 & read line; sleep 1000");
        pids.push(pid(&stream));
        // sleep: each round drops the guard at another moment after the start
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        if round % 2 == 0 {
            drop(stream);
        }
        drop(guard);
    }
    let (stream, mut guard) = start("exec sleep 1000");
    pids.push(pid(&stream));
    assert!(tokio::time::timeout(Duration::from_millis(1), guard.wait_for_exit()).await.is_err());
    drop(guard);
    wait_until_gone(&pids).await;
}

#[test]
fn no_grace_period_outlasts_the_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let script = "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let pids_of = async |child: &mut (MessageStream, ChildGuard)| -> [u32; 2] {
        [pid(&child.0), next_line(&mut child.0).await.parse().unwrap()]
    };

    // The guard lives longer than the runtime. Its drop kills at once.
    let first = runtime();
    let (child, pids) = first.block_on(async {
        let mut child = start(script);
        let pids = pids_of(&mut child).await;
        (child, pids)
    });
    drop(first);
    assert!(process_exists(pids[0]));
    drop(child.1);
    assert!(!process_exists(pids[0]));
    block_until_gone(&pids);

    // The guard is dropped just before the runtime. The end of the runtime ends the grace period.
    let second = runtime();
    let pids = second.block_on(async {
        let mut child = start(script);
        pids_of(&mut child).await
    });
    drop(second);
    assert!(!process_exists(pids[0]));
    block_until_gone(&pids);
}
