//! `kill`.

use client::ProcessState;
use testkit::{eventually, eventually_async, is_alive};

use crate::support::{CommandOutput, KeptSession, sh};

#[tokio::test]
async fn a_process_and_its_descendants_are_ended() {
    let kept = KeptSession::start().await;
    kept.process(sh("p", "sleep 1000 & exec sleep 1000")).await;
    let pid = kept.only_process().await.pid.unwrap();
    let said = kept.run(&["kill", "p", "q"]).await;
    assert_eq!((said.code, said.stdout.as_str()), (1, "p: was running, ended\n"));
    assert!(said.stderr.contains("there is no process `q` in the session `default`"), "{}", said.stderr);
    eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
    let said = kept.run(&["kill", "p"]).await;
    assert_eq!(said, CommandOutput { code: 0, stdout: "p: had exited\n".into(), stderr: String::new() });
}

#[tokio::test]
async fn a_signal_is_sent_without_ending_the_process() {
    let kept = KeptSession::start().await;
    kept.process(sh("p", "trap 'echo caught; exit 7' USR1; echo ready; while :; do sleep 0.05; done")).await;
    eventually_async("it can catch", async || (kept.run(&["logs", "p"]).await.stdout == "ready\n").then_some(()))
        .await;
    let said = kept.run(&["kill", "--signal", "user1", "p"]).await;
    assert_eq!(said, CommandOutput { code: 0, stdout: "p: user1 sent\n".into(), stderr: String::new() });
    let exited = eventually_async("the process exits", async || {
        let process = kept.only_process().await;
        (process.state == ProcessState::Closed).then_some(process)
    })
    .await;
    assert_eq!(exited.exit_code, Some(7));
    assert_eq!(kept.run(&["logs", "p"]).await.stdout, "ready\ncaught\n");
    let said = kept.run(&["kill", "--signal", "user1", "p"]).await;
    let words = "exec-server: p had exited; user1 was not sent\n";
    assert_eq!(said, CommandOutput { code: 1, stdout: String::new(), stderr: words.into() });
    let said = kept.run(&["kill", "--signal", "louder", "p"]).await;
    assert!(said.code == 1 && said.stderr.contains("there is no signal `louder`; there are interrupt,"), "{said:?}");
}
