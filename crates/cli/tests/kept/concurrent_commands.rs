//! Several commands that use one session at the same time. At most one of them (`attach`, or `run` without `-d`) is
//! attached, which means that the server sends it the events of the processes. The others, such as `logs` and `ps`,
//! only observe the session. While a command is attached, a further `attach` takes the session over, so that the
//! first command ends with an error, and a further `run` is refused.

use std::process::Stdio;

use client::{ProcessState, StartParams};
use testkit::{Signal, eventually, eventually_async, is_alive, send_signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::support::{COMMAND_TIMEOUT, KeptSession, sh};

/// Starts `logs -f` for the process `p`. The tests call this command the follower.
fn follow(kept: &KeptSession) -> Child {
    kept.command(&["logs", "-f", "p"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads stdout of a command into `so_far` until it contains `text`.
async fn read_until(child: &mut Child, so_far: &mut Vec<u8>, text: &str) {
    let stdout = child.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(so_far).contains(text) {
        assert_ne!(
            stdout.read_buf(so_far).await.unwrap(),
            0,
            "the command ended early: {}",
            String::from_utf8_lossy(so_far)
        );
    }
}

#[tokio::test]
async fn a_follower_of_a_quiet_process_does_not_notice_other_commands() {
    let kept = KeptSession::start().await;
    // The signals also end the `sleep`, and the shell might report that on stderr, so stderr is closed.
    kept.start_process(sh(
        "p",
        "exec 2>&-; trap 'echo caught' USR1; trap 'exit 3' USR2; echo ready; while :; do sleep 0.05; done",
    ))
    .await;
    let mut follower = follow(&kept);
    let mut output = Vec::new();
    read_until(&mut follower, &mut output, "ready\n").await;
    for round in 1..=5 {
        assert_eq!(kept.run(&["ps"]).await.code, 0);
        assert_eq!(kept.run(&["kill", "--signal", "user1", "p"]).await.code, 0);
        read_until(&mut follower, &mut output, &format!("ready\n{}", "caught\n".repeat(round))).await;
        assert_eq!(kept.run(&["logs", "p"]).await.code, 0);
    }
    assert_eq!(kept.run(&["kill", "--signal", "user2", "p"]).await.code, 0);
    let rest = follower.wait_with_output().await.unwrap();
    output.extend(rest.stdout);
    assert_eq!(String::from_utf8(output).unwrap(), format!("ready\n{}", "caught\n".repeat(5)));
    assert_eq!((rest.status.code(), rest.stderr.as_slice()), (Some(3), &b""[..]));
}

#[tokio::test]
async fn a_follower_of_much_output_misses_nothing_while_other_commands_observe() {
    // The server retains little output. If another command made the server drop output, the follower would miss it.
    let kept = KeptSession::with_args(&["--retain-bytes", "256KiB"]).await;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    // The process does not wait for readers. So the test lets it continue only when the follower has printed all
    // output.
    let script = format!(
        "i=0; while [ $i -lt 30 ]; do seq $i 20000; i=$((i + 1)); until [ -e {}$i ]; do sleep 0.01; done; done; exit 6",
        gate.display()
    );
    kept.start_process(sh("p", &script)).await;
    let mut follower = follow(&kept);
    let (mut output, mut expected) = (Vec::new(), String::new());
    for round in 0..30 {
        expected.extend((round..=20_000).map(|number| format!("{number}\n")));
        while output.len() < expected.len() {
            assert_ne!(
                follower.stdout.as_mut().unwrap().read_buf(&mut output).await.unwrap(),
                0,
                "the command ended early"
            );
        }
        if round % 5 == 0 {
            let args = [&["ps"][..], &["logs", "p"], &["logs", "--json", "p"]][round / 5 % 3];
            let observed = kept.run(args).await;
            assert_eq!(observed.code, 0, "{}", observed.stderr);
        }
        std::fs::write(format!("{}{}", gate.display(), round + 1), "").unwrap();
    }
    let rest = follower.wait_with_output().await.unwrap();
    output.extend(rest.stdout);
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(6), String::new()));
    assert!(output == expected.as_bytes(), "{} bytes of {}", output.len(), expected.len());
}

#[tokio::test]
async fn a_follower_that_is_interrupted_leaves_the_process_running() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "echo ready; exec sleep 1000")).await;
    let mut follower = follow(&kept);
    read_until(&mut follower, &mut Vec::new(), "ready\n").await;
    let id = follower.id().unwrap();
    send_signal(id, Signal::INT);
    eventually("Ctrl-C ends the follower", || follower.try_wait().unwrap()).await;
    let process = kept.only_process().await;
    assert!(process.state == ProcessState::Running && is_alive(process.pid.unwrap()));
    assert_eq!(kept.run(&["logs", "p"]).await.stdout, "ready\n");
}

#[tokio::test]
async fn a_command_whose_session_is_taken_over_reports_it_and_leaves_the_process_running() {
    assert_takeover_is_reported(KeptSession::start().await).await;
}

#[tokio::test]
async fn a_takeover_on_a_unix_socket_is_reported_in_the_same_way() {
    assert_takeover_is_reported(KeptSession::start_on_unix_socket().await).await;
}

/// Attaches two commands to one process. Checks the error of the first, and that the process runs on.
async fn assert_takeover_is_reported(kept: KeptSession) {
    let script = "echo ready; read line; echo got $line; exit 3";
    kept.start_process(StartParams { pipe_stdin: true, ..sh("p", script) }).await;
    let attach = || kept.command(&["attach", "p"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = attach();
    read_until(&mut first, &mut Vec::new(), "ready\n").await;
    let mut second = attach();
    read_until(&mut second, &mut Vec::new(), "ready\n").await;
    let end = tokio::time::timeout(COMMAND_TIMEOUT, first.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    let stderr = String::from_utf8(end.stderr).unwrap();
    let expected = "exec-server: another client attached to this session\n";
    assert_eq!((end.status.code(), stderr.as_str()), (Some(125), expected));
    send_signal(second.id().unwrap(), Signal::TERM);
    second.wait().await.unwrap();
    let process = kept.only_process().await;
    assert!(process.state == ProcessState::Running && is_alive(process.pid.unwrap()));
}

#[tokio::test]
async fn a_follower_continues_when_another_command_attaches() {
    let kept = KeptSession::start().await;
    let script = "echo ready; read line; echo got $line; exit 3";
    kept.start_process(StartParams { pipe_stdin: true, ..sh("p", script) }).await;
    let mut follower = follow(&kept);
    let mut output = Vec::new();
    read_until(&mut follower, &mut output, "ready\n").await;
    let mut command = kept.command(&["attach", "p"]);
    let mut attached = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    read_until(&mut attached, &mut Vec::new(), "ready\n").await;
    attached.stdin.take().unwrap().write_all(b"a line\n").await.unwrap();
    let rest = tokio::time::timeout(COMMAND_TIMEOUT, follower.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    output.extend(rest.stdout);
    assert_eq!(String::from_utf8(output).unwrap(), "ready\ngot a line\n");
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(3), String::new()));
    assert_eq!(attached.wait().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_process_does_not_wait_for_a_follower_that_does_not_read() {
    // `--detached-hold` is how long a process waits for a client that was lost. The time is longer than this test.
    let kept = KeptSession::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "1h"]).await;
    let folder = tempfile::tempdir().unwrap();
    let (go, done) = (folder.path().join("go"), folder.path().join("done"));
    let script = format!(
        "echo ready; until [ -e {} ]; do sleep 0.01; done; head -c 9000000 /dev/zero; : > {}; exec sleep 1000",
        go.display(),
        done.display()
    );
    kept.start_process(sh("p", &script)).await;
    let mut follower = follow(&kept);
    read_until(&mut follower, &mut Vec::new(), "ready\n").await;
    std::fs::write(&go, "").unwrap();
    // From here on the test does not read the output of the follower.
    eventually("the process has written all its output", || done.exists().then_some(())).await;
}

#[tokio::test]
async fn run_is_refused_while_another_command_is_attached_and_disturbs_no_command() {
    let kept = KeptSession::start().await;
    let mut command = kept.command(&["run", "-s", "default", "--", "sh", "-c", "echo ready; read line; exit 5"]);
    let mut first = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    read_until(&mut first, &mut Vec::new(), "ready\n").await;
    let second = kept.run(&["run", "-s", "default", "--", "echo", "hello"]).await;
    let stderr = "exec-server: another command is attached to the session `default`; give another --session, or start yours in the \
                 background with `exec-server run -d` and read its output with `exec-server logs -f`\n";
    assert_eq!((second.code, second.stdout.as_str(), second.stderr.as_str()), (125, "", stderr));
    first.stdin.take().unwrap().write_all(b"go on\n").await.unwrap();
    let end = tokio::time::timeout(COMMAND_TIMEOUT, first.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    assert_eq!((end.status.code(), String::from_utf8(end.stderr).unwrap()), (Some(5), String::new()));
    // Now no command is attached, because a follower only observes. So `run` is accepted.
    kept.start_process(sh("p", "exec sleep 1000")).await;
    let mut follower = kept.command(&["logs", "-f", "p"]).spawn().unwrap();
    let third = kept.run(&["run", "-s", "default", "--", "echo", "hello"]).await;
    assert_eq!((third.code, third.stdout.as_str(), third.stderr.as_str()), (0, "hello\n", ""));
    assert!(follower.try_wait().unwrap().is_none(), "the follower has ended");
}

#[tokio::test]
async fn observers_and_detached_starts_do_not_disturb_the_attached_command() {
    let kept = KeptSession::start().await;
    let script = "echo ready; while read line; do echo \"got $line\"; done; exit 4";
    kept.start_process(StartParams { pipe_stdin: true, ..sh("p", script) }).await;
    let mut command = kept.command(&["attach", "p"]);
    let mut attached = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    let mut output = Vec::new();
    read_until(&mut attached, &mut output, "ready\n").await;
    for round in 0..3 {
        assert_eq!(kept.run(&["ps"]).await.code, 0);
        assert_eq!(kept.run(&["logs", "p"]).await.code, 0);
        let started = kept.run(&["run", "-d", "--", "sh", "-c", "echo from the job; exec sleep 1000"]).await;
        assert_eq!((started.code, started.stderr.as_str()), (0, ""));
        let job = started.stdout.trim().to_owned();
        let logs = eventually_async("the job has printed something", async || {
            Some(kept.run(&["logs", &job]).await.stdout).filter(|text| !text.is_empty())
        })
        .await;
        assert_eq!(logs, "from the job\n");
        assert_eq!(kept.run(&["kill", &job]).await.code, 0);
        stdin.write_all(format!("{round}\n").as_bytes()).await.unwrap();
        read_until(&mut attached, &mut output, &format!("got {round}\n")).await;
    }
    // A follower gets the output and the exit code too.
    let mut follower = follow(&kept);
    read_until(&mut follower, &mut Vec::new(), "got 2\n").await;
    drop(stdin);
    let rest = tokio::time::timeout(COMMAND_TIMEOUT, attached.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    output.extend(rest.stdout);
    assert_eq!(String::from_utf8(output).unwrap(), "ready\ngot 0\ngot 1\ngot 2\n");
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(4), String::new()));
    let rest = tokio::time::timeout(COMMAND_TIMEOUT, follower.wait_with_output())
        .await
        .expect("the command does not end")
        .unwrap();
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(4), String::new()));
}

#[tokio::test]
async fn a_detached_process_never_waits_for_a_reader_however_often_it_is_observed() {
    // `--detached-hold` is how long a process waits for a client that was lost. The time is longer than this test.
    let kept = KeptSession::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "1h"]).await;
    let folder = tempfile::tempdir().unwrap();
    for number in 0..2 {
        let done = folder.path().join(number.to_string());
        let script = format!("head -c 3000000 /dev/zero; : > {}; exec sleep 1000", done.display());
        let output = kept.run(&["run", "-d", "--", "sh", "-c", &script]).await;
        assert_eq!((output.code, output.stderr.as_str()), (0, ""));
        eventually_async("the process has written all its output", async || {
            assert_eq!(kept.run(&["ps"]).await.code, 0);
            done.exists().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn processes_that_are_started_at_the_same_time_get_different_ids() {
    let kept = KeptSession::start().await;
    let jobs: Vec<Child> = (0..6)
        .map(|_| {
            kept.command(&["run", "-d", "--", "true"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut ids = Vec::new();
    for job in jobs {
        let output = tokio::time::timeout(COMMAND_TIMEOUT, job.wait_with_output())
            .await
            .expect("the command does not end")
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        ids.push(String::from_utf8(output.stdout).unwrap().trim().parse::<u32>().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
}
