//! Several commands about one session at the same time. One is attached, the others look; who attaches next takes the session, and who
//! had it is told so.

use std::process::Stdio;

use client::{ProcessState, StartParams};
use testkit::{Signal, eventually, eventually_async, is_alive, send_signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;

use crate::support::{Kept, PATIENCE, sh};

fn follow(kept: &Kept) -> Child {
    kept.command(&["logs", "-f", "p"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads until this has been printed.
async fn printed(child: &mut Child, so_far: &mut Vec<u8>, what: &str) {
    let stdout = child.stdout.as_mut().unwrap();
    while !String::from_utf8_lossy(so_far).contains(what) {
        assert_ne!(stdout.read_buf(so_far).await.unwrap(), 0, "it ended early: {}", String::from_utf8_lossy(so_far));
    }
}

#[tokio::test]
async fn who_follows_a_quiet_process_does_not_notice_others() {
    let kept = Kept::start().await;
    kept.process(sh(
        "p",
        "exec 2>&-; trap 'echo caught' USR1; trap 'exit 3' USR2; echo ready; while :; do sleep 0.05; done",
    ))
    .await;
    let mut follower = follow(&kept);
    let mut output = Vec::new();
    printed(&mut follower, &mut output, "ready\n").await;
    for round in 1..=5 {
        assert_eq!(kept.run(&["ps"]).await.code, 0);
        assert_eq!(kept.run(&["kill", "--signal", "user1", "p"]).await.code, 0);
        printed(&mut follower, &mut output, &format!("ready\n{}", "caught\n".repeat(round))).await;
        assert_eq!(kept.run(&["logs", "p"]).await.code, 0);
    }
    assert_eq!(kept.run(&["kill", "--signal", "user2", "p"]).await.code, 0);
    let rest = follower.wait_with_output().await.unwrap();
    output.extend(rest.stdout);
    assert_eq!(String::from_utf8(output).unwrap(), format!("ready\n{}", "caught\n".repeat(5)));
    assert_eq!((rest.status.code(), rest.stderr.as_slice()), (Some(3), &b""[..]));
}

#[tokio::test]
async fn who_follows_much_output_misses_nothing_while_others_look() {
    // Little is retained, so that whatever is dropped for another client is soon missed.
    let kept = Kept::with_args(&["--retain-bytes", "256KiB"]).await;
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let script = format!(
        "echo ready; until [ -e {} ]; do sleep 0.01; done; i=0; while [ $i -lt 100 ]; do seq $i 10000; i=$((i + 1)); done; exit 6",
        gate.display()
    );
    kept.process(sh("p", &script)).await;
    let mut follower = follow(&kept);
    let mut output = Vec::new();
    // Before somebody follows it, it waits for nobody.
    printed(&mut follower, &mut output, "ready\n").await;
    std::fs::write(&gate, "").unwrap();
    printed(&mut follower, &mut output, "5000\n").await;
    let reading = tokio::spawn(follower.wait_with_output());
    let mut looks = 0;
    while !reading.is_finished() && looks < 40 {
        let args = [&["ps"][..], &["logs", "p"], &["logs", "--json", "p"]][looks % 3];
        let said = kept.run(args).await;
        assert_eq!(said.code, 0, "{}", said.stderr);
        looks += 1;
    }
    let rest = reading.await.unwrap().unwrap();
    output.extend(rest.stdout);
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(6), String::new()), "{looks}");
    let numbers = (0..100).flat_map(|first| first..=10_000).map(|number| format!("{number}\n"));
    let expected: String = std::iter::once("ready\n".to_owned()).chain(numbers).collect();
    assert!(output == expected.as_bytes(), "{} bytes of {}", output.len(), expected.len());
    assert!(looks > 2, "nobody else had the time to look");
}

#[tokio::test]
async fn a_follower_that_leaves_changes_nothing() {
    let kept = Kept::start().await;
    kept.process(sh("p", "echo ready; exec sleep 1000")).await;
    let mut follower = follow(&kept);
    printed(&mut follower, &mut Vec::new(), "ready\n").await;
    let id = follower.id().unwrap();
    send_signal(id, Signal::INT);
    eventually("Ctrl-C ends it", || follower.try_wait().unwrap()).await;
    let process = eventually_async("the session is free", async || Some(kept.only_process().await)).await;
    assert!(process.state == ProcessState::Running && is_alive(process.pid.unwrap()));
    assert_eq!(kept.run(&["logs", "p"]).await.stdout, "ready\n");
}

#[tokio::test]
async fn who_is_taken_over_is_told_so_and_leaves_the_process_alone() {
    let kept = Kept::start().await;
    kept.process(StartParams { pipe_stdin: true, ..sh("p", "echo ready; read line; echo got $line; exit 3") }).await;
    for (verb, context) in [(&["logs", "-f", "p"][..], "cannot follow it further: "), (&["attach", "p"], "")] {
        let mut first = kept.command(verb).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        printed(&mut first, &mut Vec::new(), "ready\n").await;
        let mut second = kept.command(&["attach", "p"]).stdout(Stdio::piped()).spawn().unwrap();
        printed(&mut second, &mut Vec::new(), "ready\n").await;
        let end = tokio::time::timeout(PATIENCE, first.wait_with_output()).await.expect("it does not end").unwrap();
        let words = String::from_utf8(end.stderr).unwrap();
        let expected = format!("exec-server: {context}another client attached to this session\n");
        assert_eq!((end.status.code(), words), (Some(125), expected), "{verb:?}");
        send_signal(second.id().unwrap(), Signal::TERM);
        second.wait().await.unwrap();
        let process = kept.only_process().await;
        assert!(process.state == ProcessState::Running && is_alive(process.pid.unwrap()));
    }
}

#[tokio::test]
async fn looking_and_leaving_a_job_do_not_disturb_who_is_attached() {
    let kept = Kept::start().await;
    let script = "trap 'echo caught' USR1; echo ready; while read line; do echo \"got $line\"; done; exit 4";
    kept.process(StartParams { pipe_stdin: true, ..sh("p", script) }).await;
    let mut command = kept.command(&["attach", "p"]);
    let mut attached = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = attached.stdin.take().unwrap();
    let mut output = Vec::new();
    printed(&mut attached, &mut output, "ready\n").await;
    for round in 0..3 {
        assert_eq!(kept.run(&["ps"]).await.code, 0);
        assert_eq!(kept.run(&["logs", "p"]).await.code, 0);
        let said = kept.run(&["run", "-d", "--", "sh", "-c", "echo from the job; exec sleep 1000"]).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        let job = said.stdout.trim().to_owned();
        let logs = eventually_async("the job has said something", async || {
            Some(kept.run(&["logs", &job]).await.stdout).filter(|text| !text.is_empty())
        })
        .await;
        assert_eq!(logs, "from the job\n");
        assert_eq!(kept.run(&["kill", &job]).await.code, 0);
        stdin.write_all(format!("{round}\n").as_bytes()).await.unwrap();
        printed(&mut attached, &mut output, &format!("got {round}\n")).await;
    }
    // Even who follows it too.
    let mut follower = follow(&kept);
    printed(&mut follower, &mut Vec::new(), "got 2\n").await;
    drop(stdin);
    let rest = tokio::time::timeout(PATIENCE, attached.wait_with_output()).await.expect("it does not end").unwrap();
    output.extend(rest.stdout);
    assert_eq!(String::from_utf8(output).unwrap(), "ready\ngot 0\ngot 1\ngot 2\n");
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(4), String::new()));
    let rest = tokio::time::timeout(PATIENCE, follower.wait_with_output()).await.expect("it does not end").unwrap();
    assert_eq!((rest.status.code(), String::from_utf8(rest.stderr).unwrap()), (Some(4), String::new()));
}

#[tokio::test]
async fn a_job_that_was_left_never_waits_for_a_reader_however_often_it_is_looked_at() {
    // Whoever waits for a client that is lost waits for longer than this test.
    let kept = Kept::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "1h"]).await;
    let folder = tempfile::tempdir().unwrap();
    for (number, who) in ["in a session that nobody is attached to", "the same again"].into_iter().enumerate() {
        let done = folder.path().join(number.to_string());
        let script = format!("head -c 3000000 /dev/zero; : > {}; exec sleep 1000", done.display());
        let said = kept.run(&["run", "-d", "--", "sh", "-c", &script]).await;
        assert_eq!((said.code, said.stderr.as_str()), (0, ""));
        eventually_async(who, async || {
            assert_eq!(kept.run(&["ps"]).await.code, 0);
            done.exists().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn many_jobs_that_are_left_at_once_get_a_number_each() {
    let kept = Kept::start().await;
    let jobs: Vec<Child> = (0..6)
        .map(|_| {
            kept.command(&["run", "-d", "--", "true"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut ids = Vec::new();
    for job in jobs {
        let said = tokio::time::timeout(PATIENCE, job.wait_with_output()).await.expect("it does not end").unwrap();
        assert_eq!(said.status.code(), Some(0), "{}", String::from_utf8_lossy(&said.stderr));
        ids.push(String::from_utf8(said.stdout).unwrap().trim().parse::<u32>().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6]);
}
