//! One server with local clients (`--listen`) and clients behind a relay (`--remote`): a session belongs to the keys or
//! the connection that made it.

use relay::RelayIdentity;
use testkit::service::ReferenceHarness;
use testkit::{Client, TestService, Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{CommandEnd, ENVIRONMENT, RemoteFixture, finish};

/// Sends a request over a harness, and returns its answer.
async fn request(harness: &mut ReferenceHarness, method: &str, params: Value) -> Value {
    harness.send(json!({"id": 1, "method": method, "params": params}).to_string().as_bytes()).await.unwrap();
    loop {
        let answer: Value = serde_json::from_slice(&harness.receive().await.unwrap()).unwrap();
        if answer["id"] == 1 {
            return answer;
        }
    }
}

/// The id of the only kept session that the commands know.
fn only_session(remote: &RemoteFixture) -> String {
    let mut folder = remote.path("client-state/exec-server/sessions");
    while folder.is_dir() {
        let entries: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        folder = entries[0].clone();
    }
    std::fs::read_to_string(folder).unwrap().lines().next().unwrap().to_owned()
}

fn resume(session: &str) -> Value {
    json!({"clientName": "test", "resumeSessionId": session, "takeover": true})
}

#[tokio::test]
async fn local_and_remote_clients_share_a_server_but_no_sessions() {
    let mut remote = RemoteFixture::with_args(&["--listen", "ws://127.0.0.1:0"]).await;
    let mut lines = BufReader::new(remote.executor.child.stdout.take().unwrap()).lines();
    let url = lines.next_line().await.unwrap().unwrap();
    let pid = CommandEnd::printed(format!("{}\n", remote.executor.pid()), 0);
    assert_eq!(remote.run(&["run", "--", "sh", "-c", "echo $PPID"]).await, pid);
    let mut local = remote.command_without_target("run");
    assert_eq!(finish(local.args(["--connect", &url, "--", "sh", "-c", "echo $PPID"])).await, pid);

    assert_eq!(remote.run(&["run", "-d", "--", "sleep", "1000"]).await.stdout, "1\n");
    let session = only_session(&remote);
    let refusal = json!({"code": -32600, "message": format!("session {session} belongs to another user or token")});
    let mut local = Client::connect(&url).await;
    assert_eq!(local.call_error("initialize", resume(&session)).await, refusal);
    let mut local = Client::connect(&url).await;
    local.handshake(None).await;
    assert_eq!(local.processes().await, json!([]));
    let keys = RelayIdentity::generate().unwrap();
    let mut harness =
        ReferenceHarness::connect_as(&keys, &remote.service.url(), TestService::TOKEN, ENVIRONMENT).await.unwrap();
    let answer = request(&mut harness, "initialize", resume(&local.session)).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("belongs to another"), "{answer}");
}

#[tokio::test]
async fn other_keys_that_know_the_id_of_a_session_are_refused() {
    let remote = RemoteFixture::start().await;
    assert_eq!(remote.run(&["run", "-d", "--", "sleep", "1000"]).await.stdout, "1\n");
    let session = only_session(&remote);
    let other = RelayIdentity::generate().unwrap();
    let url = remote.service.url();
    for params in [resume(&session), json!({"clientName": "test", "resumeSessionId": session, "observe": true})] {
        let connecting = ReferenceHarness::connect_as(&other, &url, TestService::TOKEN, ENVIRONMENT);
        let answer = request(&mut connecting.await.unwrap(), "initialize", params).await;
        let message = format!("session {session} belongs to another user or token");
        assert_eq!(answer["error"], json!({"code": -32600, "message": message}));
    }
    // The command line with other keys has no way to the session either, although it knows the record of it.
    let key = remote.path("client-state/exec-server/harness.key");
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    let refused = remote.run(&["ps"]).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("belongs to another"), "{refused:?}");
    std::fs::write(&key, kept).unwrap();
    let listed = remote.run(&["ps", "--json"]).await;
    let processes: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(processes[0]["state"], "running", "the owner of the session still has it");
}
