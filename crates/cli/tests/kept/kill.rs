//! The command `kill`, which ends processes of a kept session or sends them a signal.

use client::ProcessState;
use testkit::{eventually, eventually_async, is_alive};

use crate::support::{CommandOutput, KeptSession, sh};

#[tokio::test]
async fn a_process_and_its_descendants_are_ended() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "sleep 1000 & exec sleep 1000")).await;
    let pid = kept.only_process().await.pid.unwrap();
    let output = kept.run(&["kill", "p", "q"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, "p: was running, ended\n"));
    assert!(output.stderr.contains("there is no process `q` in the session `default`"), "{}", output.stderr);
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
    let output = kept.run(&["kill", "p"]).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "p: had exited\n".into(), stderr: String::new() });
}

#[tokio::test]
async fn a_signal_is_sent_without_ending_the_process() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done")).await;
    eventually_async("the process can catch the signal", async || {
        (kept.run(&["logs", "p"]).await.stdout == "ready\n").then_some(())
    })
    .await;
    let output = kept.run(&["kill", "--signal", "user1", "p"]).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "p: user1 sent\n".into(), stderr: String::new() });
    let exited = eventually_async("the process exits", async || {
        let process = kept.only_process().await;
        (process.state == ProcessState::Closed).then_some(process)
    })
    .await;
    assert_eq!(exited.exit_code, Some(7));
    assert_eq!(kept.run(&["logs", "p"]).await.stdout, "ready\ncaught\n");
    let output = kept.run(&["kill", "--signal", "user1", "p"]).await;
    let message = "exec-server: p had exited; user1 was not sent\n";
    assert_eq!(output, CommandOutput { code: 1, stdout: String::new(), stderr: message.into() });
    let output = kept.run(&["kill", "--signal", "louder", "p"]).await;
    assert!(
        output.code == 1 && output.stderr.contains("there is no signal `louder`; there are interrupt,"),
        "{output:?}"
    );
}
