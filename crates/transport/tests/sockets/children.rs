//! Children that are spoken to over their pipes, and that none of them is left.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::send;
use transport::{
    ChildCommand, ChildGuard, ChildSpawnError, MessageLimits, MessageStream, PeerLabel, ReadEvent, spawn_child,
};

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
    match stream.peer {
        PeerLabel::Child(pid) => pid,
        other => panic!("{other} is not a child"),
    }
}

async fn line(stream: &mut MessageStream) -> String {
    match stream.reader.next().await.unwrap() {
        ReadEvent::Message(line) => String::from_utf8(line.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// A child of ours that was not reaped exists; somebody else's zombie is theirs to reap.
fn is_left(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let mut fields = stat.rsplit_once(") ").unwrap().1.split(' ');
    let (state, parent) = (fields.next().unwrap(), fields.next().unwrap());
    state != "Z" || parent == std::process::id().to_string()
}

fn wait_until_gone(pids: &[u32]) {
    let started = Instant::now();
    while pids.iter().any(|pid| is_left(*pid)) {
        assert!(started.elapsed() < Duration::from_secs(30), "still there: {pids:?}");
        // sleep: the end of somebody else's process can only be looked for
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn gone(pids: &[u32]) {
    let pids = pids.to_vec();
    tokio::task::spawn_blocking(move || wait_until_gone(&pids)).await.unwrap();
}

#[tokio::test]
async fn messages_are_lines_of_its_pipes() {
    let command = ChildCommand { program: "cat".into(), ..ChildCommand::default() };
    let (mut stream, mut guard) = spawn(&command).unwrap();
    send(&mut stream, b"{\"id\":1}").await;
    assert_eq!(line(&mut stream).await, "{\"id\":1}");
    stream.writer.shutdown().await;
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    assert!(guard.wait_for_exit().await.status.unwrap().success());
    assert!(!is_left(pid(&stream)));
}

#[tokio::test]
async fn a_dropped_writer_closes_stdin() {
    let (stream, mut guard) = start("cat");
    drop(stream);
    assert!(guard.wait_for_exit().await.status.unwrap().success());
}

#[tokio::test]
async fn environment_and_directory_are_as_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let command = ChildCommand {
        env: vec![("GIVEN".into(), "yes".into()), ("HOME".into(), "/given".into())],
        env_remove: vec!["PATH".into(), "HOME".into()],
        cwd: Some(directory.path().into()),
        program: "/bin/sh".into(),
        ..shell(
            "echo \"$GIVEN $HOME ${CARGO_MANIFEST_DIR:+inherited}\"; /usr/bin/env | /bin/grep -c '^PATH='; pwd -P; echo",
        )
    };
    let (mut stream, mut guard) = spawn(&command).unwrap();
    assert_eq!(line(&mut stream).await, "yes /given inherited");
    assert_eq!(line(&mut stream).await, "0");
    assert_eq!(line(&mut stream).await, directory.path().canonicalize().unwrap().to_string_lossy());
    guard.wait_for_exit().await;
}

#[tokio::test]
async fn what_cannot_be_started_is_named() {
    let missing = ChildCommand { program: "no-such-program-here".into(), ..ChildCommand::default() };
    let error = spawn(&missing).unwrap_err();
    assert_eq!(error.to_string(), "cannot start `no-such-program-here`: No such file or directory (os error 2)");
    let nowhere = ChildCommand { cwd: Some("/no/such/directory".into()), ..shell("true") };
    let error = spawn(&nowhere).unwrap_err();
    assert!(matches!(error, ChildSpawnError::NoDirectory { .. }), "{error}");
}

#[tokio::test]
async fn a_child_that_ends_at_once_says_why() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    let keep = move |line: &str| keep.lock().unwrap().push(line.to_owned());
    let script = "for n in 1 2 3 4 5 6 7 8; do echo line $n >&2; done; printf 'no route' >&2; exit 3";
    let (mut stream, mut guard) = spawn_child(&shell(script), MessageLimits::default(), keep).unwrap();
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    let end = guard.wait_for_exit().await;
    assert_eq!(end.status.unwrap().code(), Some(3));
    assert_eq!(
        end.to_string(),
        "`sh` ended with exit status: 3: line 2; line 3; line 4; line 5; line 6; line 7; line 8; no route"
    );
    assert_eq!(told.lock().unwrap().len(), 9);
    assert_eq!(guard.wait_for_exit().await, end, "a second call says the same");
}

#[tokio::test]
async fn a_long_line_on_stderr_is_cut() {
    let (_stream, mut guard) = start("head -c 1000000 /dev/zero | tr '\\0' x >&2; echo >&2; echo after >&2");
    let words = guard.wait_for_exit().await.last_words;
    assert_eq!((words[0].len(), words[1].as_str()), (1024, "after"));
}

#[tokio::test]
async fn somebody_else_who_holds_stderr_does_not_delay_the_end() {
    let (mut stream, mut guard) = start("setsid sh -c 'echo $$; exec sleep 1000' & read line; echo last >&2");
    let outsider: u32 = line(&mut stream).await.parse().unwrap();
    stream.writer.shutdown().await;
    assert_eq!(guard.wait_for_exit().await.last_words, ["last"]);
    let pid = rustix::process::Pid::from_raw(outsider.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn garbage_is_handed_on_as_it_is() {
    let (mut stream, mut guard) = spawn_child(
        &shell("printf 'not json\\n\\377\\376\\n'; head -c 100000 /dev/zero; echo; echo fine"),
        MessageLimits { message_bytes: 1000 },
        |_| {},
    )
    .unwrap();
    assert_eq!(line(&mut stream).await, "not json");
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Message(b"\xff\xfe"[..].into()));
    assert!(matches!(stream.reader.next().await.unwrap(), ReadEvent::TooLarge { .. }));
    assert_eq!(line(&mut stream).await, "fine");
    guard.wait_for_exit().await;
}

#[tokio::test]
async fn ending_is_a_closed_stdin_and_a_signal() {
    let (mut stream, guard) = start("trap 'echo termed; exit 7' TERM; echo ready; while :; do read line || :; done");
    assert_eq!(line(&mut stream).await, "ready");
    let started = Instant::now();
    drop(guard);
    assert_eq!(line(&mut stream).await, "termed");
    gone(&[pid(&stream)]).await;
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(stream.writer.write_all(b"{}\n").await.is_err());
}

#[tokio::test]
async fn whoever_ignores_the_signal_is_killed_with_its_group() {
    let (mut stream, guard) = start("trap '' TERM; sleep 1000 & echo $!; while :; do wait; done");
    let pids = [pid(&stream), line(&mut stream).await.parse().unwrap()];
    let started = Instant::now();
    drop(guard);
    gone(&pids).await;
    assert!((2..10).contains(&started.elapsed().as_secs()));
}

#[tokio::test]
async fn a_child_that_exits_takes_its_group_along() {
    let (mut stream, mut guard) = start("trap '' TERM; sleep 1000 & echo $!");
    let pids = [pid(&stream), line(&mut stream).await.parse().unwrap()];
    assert!(guard.wait_for_exit().await.status.unwrap().success());
    assert_eq!(stream.reader.next().await.unwrap(), ReadEvent::Closed(None));
    gone(&pids).await;
}

#[tokio::test]
async fn a_writer_that_waits_for_room_is_told_of_the_end() {
    let (mut stream, guard) = start("trap '' TERM; echo ready; exec sleep 1000");
    assert_eq!(line(&mut stream).await, "ready");
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
async fn a_guard_dropped_at_any_time_leaves_nobody() {
    let mut pids = Vec::new();
    for round in 0..40u64 {
        let (stream, guard) = start("sleep 1000 & read line; sleep 1000");
        pids.push(pid(&stream));
        // sleep: the moment is what varies
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        if round % 2 == 0 {
            drop(stream);
        }
        drop(guard);
    }
    let mut impatient = start("exec sleep 1000");
    pids.push(pid(&impatient.0));
    assert!(tokio::time::timeout(Duration::from_millis(1), impatient.1.wait_for_exit()).await.is_err());
    drop(impatient.1);
    gone(&pids).await;
}

#[test]
fn a_runtime_that_ends_kills_at_once() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let script = "trap '' TERM; sleep 1000 & echo $!; while :; do wait; done";
    let pids_of = async |child: &mut (MessageStream, ChildGuard)| -> [u32; 2] {
        [pid(&child.0), line(&mut child.0).await.parse().unwrap()]
    };

    // The guard survives the runtime.
    let first = runtime();
    let (child, pids) = first.block_on(async {
        let mut child = start(script);
        let pids = pids_of(&mut child).await;
        (child, pids)
    });
    drop(first);
    assert!(is_left(pids[0]));
    drop(child.1);
    assert!(!is_left(pids[0]));
    wait_until_gone(&pids);

    // The guard was dropped before, and the grace had just begun.
    let second = runtime();
    let pids = second.block_on(async {
        let mut child = start(script);
        pids_of(&mut child).await
    });
    drop(second);
    assert!(!is_left(pids[0]));
    wait_until_gone(&pids);
}
