//! Against a server that knows the published protocol and none of our extensions, the stdin of an MCP server cannot be ended.

use testkit::{PublishedServer, TestServer, eventually, is_alive};

use crate::support::{Bridge, Ending};

#[tokio::test]
async fn one_that_cannot_be_told_that_we_leave_is_ended_in_our_place() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedServer::start(TestServer::start().await, folder.path());
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", "echo $$; exec cat"]);
    let pid: u32 = bridge.line().await.trim().parse().unwrap();
    bridge.send("one\n").await;
    assert_eq!(bridge.line().await, "one\n");
    bridge.send("two\n").await;
    bridge.close();
    let expected = Ending { code: Some(0), stdout: "two\n".into(), stderr: String::new() };
    assert_eq!(bridge.ending().await, expected);
    eventually("nothing is left", || (!is_alive(pid)).then_some(())).await;
}

#[tokio::test]
async fn its_own_exit_and_a_missing_command_are_told_as_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedServer::start(TestServer::start().await, folder.path());
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", "read line; echo $line; exit 9"]);
    bridge.send("last\n").await;
    bridge.close();
    assert_eq!(bridge.ending().await, Ending { code: Some(9), stdout: "last\n".into(), stderr: String::new() });
    let ending = Bridge::start(published.url(), &["no-such-mcp-server"]).ending().await;
    assert_eq!((ending.code, ending.stdout.as_str()), (Some(127), ""));
}

#[tokio::test]
async fn an_exit_of_its_own_after_the_interrupt_is_ours() {
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedServer::start(TestServer::start().await, folder.path());
    let script = "trap 'exit 9' INT; echo ready; while :; do sleep 0.05; done";
    let mut bridge = Bridge::start(published.url(), &["sh", "-c", script]);
    assert_eq!(bridge.line().await, "ready\n");
    bridge.close();
    assert_eq!(bridge.ending().await, Ending { code: Some(9), stdout: String::new(), stderr: String::new() });
}
