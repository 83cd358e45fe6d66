//! The command `kill`, which ends processes of a kept session (one that outlives its connections) or sends them a
//! signal.

use client::ProcessState;
use testkit::{eventually, eventually_async, is_alive};

use crate::support::{CommandOutput, KeptSession, sh};

#[tokio::test]
async fn a_process_and_its_descendants_are_ended_and_an_unknown_id_is_an_error() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "sleep 1000 & echo $!; exec sleep 1000")).await;
    let child: u32 = eventually_async("the process prints the pid of its child", async || {
        kept.run(&["logs", "p"]).await.stdout.trim().parse().ok()
    })
    .await;
    let pid = kept.only_process().await.pid.unwrap();
    let output = kept.run(&["kill", "p", "q"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (1, "p: was running, ended\n"));
    assert!(output.stderr.contains("there is no process `q` in the session `default`"), "{}", output.stderr);
    eventually("both processes are gone", || (!is_alive(pid) && !is_alive(child)).then_some(())).await;
    let output = kept.run(&["kill", "p"]).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "p: had exited\n".into(), stderr: String::new() });
}

#[tokio::test]
async fn a_signal_is_sent_only_if_the_process_runs_and_the_signal_exists() {
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
