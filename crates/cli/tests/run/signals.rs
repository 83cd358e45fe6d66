//! Signals to the process `exec-server run`, here called `run`: it passes them to the command, and leaves no process
//! behind when it ends.

use std::path::Path;
use std::process::Stdio;

use testkit::{Signal, descendants, eventually, is_alive, process_state, send_signal};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::{command, read_pid, text_and_code, wait_for_output};

/// Runs a shell script with `run`, and waits until the script has printed `ready`. Returns `run` and its pid.
async fn run_until_ready(script: &str) -> (Child, u32) {
    spawn_until_ready(command(&["run", "--", "bash", "-c", script])).await
}

/// Like [`run_until_ready`], for any command that prints `ready`.
async fn spawn_until_ready(mut command: Command) -> (Child, u32) {
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("ready"));
    let pid = child.id().unwrap();
    // Further output is read and dropped, so that the process does not wait for a reader.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, pid)
}

#[tokio::test]
async fn signals_to_run_reach_the_command() {
    let names = [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ];
    for (signal, name) in names {
        let (child, pid) = run_until_ready(&format!(
            "trap 'echo got {name} >&2; exit 40' {name}; echo ready; while :; do sleep 0.05; done"
        ))
        .await;
        send_signal(pid, signal);
        let (_, stderr, code) = text_and_code(&wait_for_output(child).await);
        assert!(stderr.contains(&format!("got {name}")), "{name}: {stderr}");
        assert_eq!(code, Some(40), "{name}");
    }
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_output_of_descendants() {
    // The descendant writes until a write fails, because no process reads its output any more.
    let script = "setsid sh -c 'while echo on; do sleep 0.05; done' & exit 3";
    let mut child = command(&["run", "--json", "--", "sh", "-c", script]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    while !lines.next_line().await.unwrap().expect("the command does not exit").contains("\"exited\"") {}
    send_signal(child.id().unwrap(), Signal::TERM);
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    let (_, stderr, code) = text_and_code(&wait_for_output(child).await);
    assert_eq!((stderr.as_str(), code), ("", Some(3)));
}

#[tokio::test]
async fn a_signal_that_run_ignores_from_its_start_is_not_passed_on() {
    for name in ["HUP", "INT", "QUIT", "TERM"] {
        let script = format!(
            "trap 'echo got {name} >&2; exit 40' {name}; trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done"
        );
        let binary = testkit::binary();
        let ignoring = format!("trap '' {name}; exec {} run -- bash -c \"$0\"", binary.display());
        let mut starter = Command::new("bash");
        starter.args(["-c", &ignoring, &script]);
        starter.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        testkit::hide_configuration(&mut starter);
        let (child, pid) = spawn_until_ready(starter).await;
        let signal = match name {
            "HUP" => Signal::HUP,
            "INT" => Signal::INT,
            "QUIT" => Signal::QUIT,
            _ => Signal::TERM,
        };
        send_signal(pid, signal);
        // SIGUSR1 is sent after the ignored signal. If `run` passed the ignored signal on, the command would get it
        // first and exit with 40.
        send_signal(pid, Signal::USR1);
        let (_, stderr, code) = text_and_code(&wait_for_output(child).await);
        assert!(code == Some(0) && !stderr.contains("got"), "{name}: {code:?} {stderr}");
    }
}

#[tokio::test]
async fn a_command_that_ends_by_a_signal_has_the_same_exit_code_as_in_a_shell() {
    let (child, pid) = run_until_ready("echo ready; exec sleep 600").await;
    send_signal(pid, Signal::TERM);
    assert_eq!(wait_for_output(child).await.status.code(), Some(143));
}

#[tokio::test]
async fn stopping_and_continuing_run_stops_and_continues_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; echo ready; exec sleep 600", pid_file.display());
    let (mut child, pid) = run_until_ready(&script).await;
    let command_pid = read_pid(&pid_file).await;
    let wait_for_state = async |pid: u32, is_stopped: bool| {
        let what = if is_stopped { "the process is stopped" } else { "the process continues" };
        eventually(what, || (process_state(pid)? == 'T').eq(&is_stopped).then_some(())).await;
    };
    send_signal(pid, Signal::TSTP);
    wait_for_state(command_pid, true).await;
    wait_for_state(pid, true).await;
    send_signal(pid, Signal::CONT);
    wait_for_state(pid, false).await;
    wait_for_state(command_pid, false).await;
    child.kill().await.unwrap();
}

#[tokio::test]
async fn no_process_is_left_when_run_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("trap '' TERM HUP INT; sleep 600 & echo $! > {}; echo ready; wait", pid_file.display());
    let (mut child, pid) = run_until_ready(&script).await;
    let started = read_pid(&pid_file).await;
    let all = descendants(pid);
    assert!(all.contains(&started), "{all:?}");
    child.kill().await.unwrap();
    eventually("all processes are gone", || all.iter().all(|pid| !is_alive(*pid)).then_some(())).await;
}

#[tokio::test]
async fn sigterm_ends_run_even_if_its_output_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!("echo $$ > {}; exec cat /dev/zero", pid_file.display());
    let mut child = command(&["run", "--", "sh", "-c", &script]).spawn().unwrap();
    let pid = child.id().unwrap();
    let command_pid = read_pid(&pid_file).await;
    wait_until_blocked(Path::new(&format!("/proc/{command_pid}/stat"))).await;
    send_signal(pid, Signal::TERM);
    let status = child.wait().await.unwrap();
    assert_eq!(status.code(), Some(143));
    eventually("the process is gone", || (!is_alive(command_pid)).then_some(())).await;
}

/// Waits until the file `/proc/PID/stat` of a process does not change any more, because all buffers between the
/// process and this test are full.
async fn wait_until_blocked(stat: &Path) {
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
