//! Several commands about one session at the same time. Only one can be attached; who is displaced comes back and has missed nothing.

use std::process::Stdio;

use client::{ProcessState, StartParams};
use testkit::{Signal, eventually, eventually_async, is_alive, send_signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::Child;

use crate::support::{Kept, sh};

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
    kept.process(sh("p", "i=0; while [ $i -lt 100 ]; do seq $i 10000; i=$((i + 1)); done; exit 6")).await;
    let mut follower = follow(&kept);
    let mut output = Vec::new();
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
    let expected: String = (0..100).flat_map(|first| first..=10_000).map(|number| format!("{number}\n")).collect();
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
async fn a_follower_that_missed_something_says_so_and_leaves_the_process_alone() {
    let kept = Kept::with_args(&["--retain-bytes", "64KiB"]).await;
    let script = "echo ready; read line; head -c 1000000 /dev/zero; echo done; exec sleep 1000";
    kept.process(StartParams { pipe_stdin: true, ..sh("p", script) }).await;
    let mut follower = follow(&kept);
    printed(&mut follower, &mut Vec::new(), "ready\n").await;
    let other = kept.client().await;
    let process = other.attach("p").await.unwrap();
    process.write("go\n").await.unwrap();
    let (mut stdout, mut seen) = (process.stdout(), Vec::new());
    while !seen.ends_with(b"done\n") {
        assert_ne!(stdout.read_buf(&mut seen).await.unwrap(), 0);
    }
    drop((stdout, process));
    other.close().await;
    let rest = follower.wait_with_output().await.unwrap();
    let words = String::from_utf8(rest.stderr).unwrap();
    assert!(rest.status.code() == Some(125) && words.contains("bytes of output are lost"), "{words}");
    let process = kept.only_process().await;
    assert!(process.state == ProcessState::Running && is_alive(process.pid.unwrap()));
}
