//! Signals to our command, and that nothing is left when it ends.

use std::path::Path;
use std::process::Stdio;

use testkit::{Signal, descendants, eventually, is_alive, process_state, send_signal};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::{command, finished, number_in, told};

/// Runs a shell script that prints `ready` when it is.
async fn ready(script: &str) -> (Child, u32) {
    ready_in(command(&["run", "--", "bash", "-c", script])).await
}

/// The same for a command that executes such a script.
async fn ready_in(mut command: Command) -> (Child, u32) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    let pid = child.id().unwrap();
    // The rest is read too, so that the process does not wait for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, pid)
}

#[tokio::test]
async fn every_signal_reaches_the_process() {
    let names = [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ];
    for (signal, name) in names {
        let (child, pid) =
            ready(&format!("trap 'echo got {name} >&2; exit 40' {name}; echo ready; while :; do sleep 0.05; done"))
                .await;
        send_signal(pid, signal);
        let (_, stderr, code) = told(&finished(child).await);
        assert!(stderr.contains(&format!("got {name}")), "{name}: {stderr}");
        assert_eq!(code, Some(40), "{name}");
    }
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_output_of_descendants() {
    // The descendant ends when its output is no longer read.
    let script = "setsid sh -c 'while echo on; do sleep 0.05; done' & exit 3";
    let mut child = command(&["run", "--json", "--", "sh", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("the command does not exit").contains("\"exited\"") {}
    send_signal(child.id().unwrap(), Signal::TERM);
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let (_, stderr, code) = told(&finished(child).await);
    assert_eq!((stderr.as_str(), code), ("", Some(3)));
}

#[tokio::test]
async fn a_signal_that_is_ignored_at_our_start_stays_ignored() {
    for name in ["HUP", "INT", "QUIT", "TERM"] {
        let script = format!(
            "trap 'echo got {name} >&2; exit 40' {name}; trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"
        );
        let binary = testkit::binary();
        let ignoring = format!("trap '' {name}; exec {} run -- bash -c \"$0\"", binary.display());
        let mut starter = Command::new("bash");
        starter.args(["-c", &ignoring, &script]);
        starter.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        testkit::without_configuration(&mut starter);
        let (child, pid) = ready_in(starter).await;
        let signal = match name {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            _ => Signal::TERM,
        };
        send_signal(pid, signal);
        // This signal comes after the other one. If the other one was passed on, the command has got it by then.
        send_signal(pid, Signal::USR1);
        let (_, stderr, code) = told(&finished(child).await);
        assert!(code == Some(0) && !stderr.contains("got"), "{name}: {code:?} {stderr}");
    }
}

#[tokio::test]
async fn a_process_that_ends_by_a_signal_is_reported_as_a_shell_does() {
    let (child, pid) = ready("echo ready; exec sleep 600").await;
    send_signal(pid, Signal::TERM);
    assert_eq!(finished(child).await.status.code(), Some(143));
}

#[tokio::test]
async fn stopping_and_continuing_us_stops_and_continues_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let number = folder.path().join("pid");
    let script = format!("echo $$ > {}; echo ready; exec sleep 600", number.display());
    let (mut child, pid) = ready(&script).await;
    let process = number_in(&number).await;
    let state_of = async |pid: u32, is_stopped: bool| {
        let what = if is_stopped { "it is stopped" } else { "it goes on" };
        eventually(what, || (process_state(pid)? == 'T').eq(&is_stopped).then_some(())).await;
    };
    send_signal(pid, Signal::TSTP);
    state_of(process, true).await;
    state_of(pid, true).await;
    send_signal(pid, Signal::CONT);
    state_of(pid, false).await;
    state_of(process, false).await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn nothing_is_left_when_we_are_killed() {
    let folder = tempfile::tempdir().unwrap();
    let number = folder.path().join("pid");
    let script = format!("trap '' TERM HUP INT; sleep 600 & echo $! > {}; echo ready; wait", number.display());
    let (mut child, pid) = ready(&script).await;
    let started = number_in(&number).await;
    let all = descendants(pid);
    assert!(all.contains(&started), "{all:?}");
    child.kill().await.unwrap();
    eventually("all processes are gone", || all.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
}

#[tokio::test]
async fn a_termination_does_not_wait_for_a_reader_that_never_reads() {
    let folder = tempfile::tempdir().unwrap();
    let number = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec cat /dev/zero", number.display());
    let mut child = command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = child.id().unwrap();
    let process = number_in(&number).await;
    wait_until_asleep_for_good(Path::new(&format!("/proc/{process}/stat"))).await;
    send_signal(pid, Signal::TERM);
    let status = child.wait().await.unwrap();
    assert_eq!(status.code(), Some(143));
    eventually("the process is gone", || (!is_alive(process)).then_some(())).await;
}

/// Waits until its CPU time no longer grows, because everything between it and the reader is full.
async fn wait_until_asleep_for_good(stat: &Path) {
    let mut before = String::new();
    let mut same = 0;
    eventually("the process waits", || {
        let now = std::fs::read_to_string(stat).ok()?;
        same = if now == before { same + 1 } else { 0 };
        before = now;
        (same > 40).then_some(())
    })
    .await;
}
