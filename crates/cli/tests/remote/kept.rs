//! Kept sessions through the relay: they belong to the keys of the client, and outlive its commands and its executor's
//! sockets.

use std::process::Stdio;

use testkit::service::Leg;
use testkit::{Value, eventually, eventually_async, is_alive};
use tokio::io::AsyncWriteExt as _;

use crate::support::{CommandEnd, RemoteFixture, read_pid, wait_for_end};

#[tokio::test]
async fn a_detached_command_is_listed_attached_followed_and_killed() {
    let remote = RemoteFixture::start().await;
    let job = format!("echo $$ > {}; echo begun; read line; echo got $line; exit 7", remote.path("pid").display());
    assert_eq!(remote.run(&["run", "-d", "--", "sh", "-c", &job]).await, CommandEnd::printed("1\n", 0));
    let pid = read_pid(&remote.path("pid")).await;
    assert_eq!(remote.run(&["run", "-d", "--id", "long", "--", "sleep", "1000"]).await.stdout, "long\n");
    let listed = remote.run(&["ps", "--json"]).await;
    let processes: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let of_process = |id: &str| processes.iter().find(|process| process["processId"] == id).unwrap();
    assert_eq!((&of_process("1")["pid"], &of_process("long")["state"]), (&pid.into(), &"running".into()));
    // Both ends lose their sockets between the commands.
    remote.service.cut(Leg::Executor);
    let output = eventually_async("the executor is back", async || {
        let output = remote.run(&["logs", "1"]).await;
        (output.stdout == "begun\n").then_some(output)
    })
    .await;
    assert_eq!(output, CommandEnd::printed("begun\n", 0));
    assert!(is_alive(pid));

    let mut attached = remote.command(&["attach", "1"]).stdin(Stdio::piped()).spawn().unwrap();
    attached.stdin.take().unwrap().write_all(b"a line\n").await.unwrap();
    let expected = CommandEnd::printed("begun\ngot a line\n", 7);
    assert_eq!(CommandEnd::from(wait_for_end(attached).await), expected);
    assert_eq!(remote.run(&["logs", "-f", "1"]).await, expected);
    assert_eq!(remote.run(&["kill", "long"]).await, CommandEnd::printed("long: was running, ended\n", 0));
    assert_eq!(remote.service.violations(), [""; 0]);
}

#[tokio::test]
async fn a_command_in_the_session_of_another_command_shares_its_processes() {
    let remote = RemoteFixture::start().await;
    let wait = ["run", "-d", "-s", "work", "--id", "job", "--", "sleep", "1000"];
    assert_eq!(remote.run(&wait).await, CommandEnd::printed("job\n", 0));
    assert_eq!(remote.run(&["run", "-s", "work", "--", "echo", "hi"]).await, CommandEnd::printed("hi\n", 0));
    let listed = remote.run(&["ps", "-s", "work", "--json"]).await;
    let processes: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    let job = processes.iter().find(|process| process["processId"] == "job").unwrap();
    let pid = u32::try_from(job["pid"].as_u64().unwrap()).unwrap();
    assert_eq!(remote.run(&["kill", "-s", "work", "job"]).await.code, Some(0));
    eventually("the job is gone", || (!is_alive(pid)).then_some(())).await;
}
