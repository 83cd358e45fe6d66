//! Questions of the server about the network of a process, and its reports about decisions.

use std::sync::Arc;

use client::{
    ConnectionState, DecidingNetwork, ExecProcess, NetworkDecisionNotification, NetworkPolicyDecider,
    NetworkPolicyRequest, NetworkPolicyVerdict, NetworkProtocol,
};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, json};
use tokio::sync::mpsc;

use crate::support::{connect, params, wait_for_state};

/// What has happened to a decider.
#[derive(Debug, PartialEq, Eq)]
enum Happened {
    Asked(String),
    Withdrawn,
    Told(String),
}

/// Decides by the name of the host, and reports what happens to it. For the host `wait.test` it never decides.
struct TestDecider(mpsc::UnboundedSender<Happened>);

struct ReportDrop(mpsc::UnboundedSender<Happened>);

impl Drop for ReportDrop {
    fn drop(&mut self) {
        let _test_is_over = self.0.send(Happened::Withdrawn);
    }
}

impl NetworkPolicyDecider for TestDecider {
    fn decide(&self, request: NetworkPolicyRequest) -> DecidingNetwork<'_> {
        self.0.send(Happened::Asked(request.host.clone())).unwrap();
        Box::pin(async move {
            match request.host.as_str() {
                "allow.test" => NetworkPolicyVerdict::Allow,
                "ask.test" => NetworkPolicyVerdict::Ask { reason: "needs approval".to_owned() },
                "long.test" => NetworkPolicyVerdict::Deny { reason: "x".repeat(1025) },
                "panic.test" => panic!("on purpose"),
                "wait.test" => {
                    let _report = ReportDrop(self.0.clone());
                    std::future::pending().await
                }
                _ => NetworkPolicyVerdict::Deny { reason: "not today".to_owned() },
            }
        })
    }

    fn note_decision(&self, decision: NetworkDecisionNotification) {
        assert_eq!(decision.protocol, NetworkProtocol::Http);
        self.0.send(Happened::Told(decision.host)).unwrap();
    }
}

/// A client with a process `p` that has a decider.
async fn deciding_client(
    server: &ScriptedServer,
) -> (client::ExecServerClient, ExecProcess, mpsc::UnboundedReceiver<Happened>) {
    let client = connect(server).await;
    let (report, happened) = mpsc::unbounded_channel();
    let decider = Arc::new(TestDecider(report));
    let process = client.start_with_network_policy_decider(params("p"), decider).await.unwrap();
    (client, process, happened)
}

fn question(host: &str) -> testkit::Value {
    json!({"processId": "p", "request": {"protocol": "https_connect", "host": host, "port": 443}})
}

fn ask(server: &ScriptedServer, id: i64, params: testkit::Value) {
    server.connection().request(id, "network/policyRequest", params);
}

#[tokio::test]
async fn the_decider_of_the_process_answers() {
    let server = ScriptedServer::new();
    let (_client, _process, mut happened) = deciding_client(&server).await;
    for (id, host, decision) in [
        (0, "allow.test", json!({"type": "allow"})),
        (1, "deny.test", json!({"type": "deny", "reason": "not today"})),
        (2, "ask.test", json!({"type": "ask", "reason": "needs approval"})),
        (3, "long.test", json!({"type": "deny", "reason": "not_allowed"})),
    ] {
        ask(&server, id, question(host));
        assert_eq!(server.wait_for_answer(id).await["result"], json!({"decision": decision}), "{host}");
        assert_eq!(happened.recv().await, Some(Happened::Asked(host.to_owned())));
    }
    ask(&server, 0, question("allow.test"));
    assert_eq!(happened.recv().await, Some(Happened::Asked("allow.test".to_owned())), "an answered id is free again");
}

#[tokio::test]
async fn questions_that_nobody_can_decide_are_answered_with_no() {
    let server = ScriptedServer::new();
    let (client, _process, mut happened) = deciding_client(&server).await;
    let _other = client.start(params("without")).await.unwrap();
    let mut of_other = question("allow.test");
    of_other["processId"] = json!("without");
    let mut forged = question("allow.test");
    forged["processId"] = json!("forged");
    let long = "h".repeat(254);
    let questions =
        [of_other, forged, question(""), question("a b"), question(&long), json!({"processId": "p"}), json!(null)];
    for (id, question) in (1..).zip(questions) {
        ask(&server, id, question.clone());
        let denied = json!({"decision": {"type": "deny", "reason": "not_allowed"}});
        assert_eq!(server.wait_for_answer(id).await["result"], denied, "{question}");
    }
    assert!(happened.try_recv().is_err(), "the decider was asked");
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn a_question_is_withdrawn_and_answered_with_no_when_the_process_is_given_up() {
    let server = ScriptedServer::new();
    let (_client, process, mut happened) = deciding_client(&server).await;
    ask(&server, 1, question("wait.test"));
    assert_eq!(happened.recv().await, Some(Happened::Asked("wait.test".to_owned())));
    drop(process);
    assert_eq!(server.wait_for_answer(1).await["result"]["decision"]["reason"], "not_allowed");
    assert_eq!(happened.recv().await, Some(Happened::Withdrawn));
}

#[tokio::test]
async fn a_question_is_withdrawn_when_the_process_has_closed() {
    let server = ScriptedServer::new();
    let (_client, _process, mut happened) = deciding_client(&server).await;
    ask(&server, 1, question("wait.test"));
    assert_eq!(happened.recv().await, Some(Happened::Asked("wait.test".to_owned())));
    server.push_exited("p", 1, 0);
    server.push_closed("p", 2);
    assert_eq!(server.wait_for_answer(1).await["result"]["decision"]["type"], "deny");
    assert_eq!(happened.recv().await, Some(Happened::Withdrawn));
}

#[tokio::test]
async fn a_question_is_withdrawn_when_its_start_is_cancelled() {
    let server = ScriptedServer::new();
    server.on("process/start", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let (report, mut happened) = mpsc::unbounded_channel();
    let starting = tokio::spawn({
        let client = client.clone();
        async move { client.start_with_network_policy_decider(params("p"), Arc::new(TestDecider(report))).await.map(drop) }
    });
    server.wait_for("process/start", 1).await;
    ask(&server, 1, question("wait.test"));
    assert_eq!(happened.recv().await, Some(Happened::Asked("wait.test".to_owned())));
    starting.abort();
    assert_eq!(happened.recv().await, Some(Happened::Withdrawn));
}

#[tokio::test]
async fn a_question_is_withdrawn_when_the_connection_ends() {
    let server = ScriptedServer::new();
    let (client, _process, mut happened) = deciding_client(&server).await;
    ask(&server, 1, question("wait.test"));
    assert_eq!(happened.recv().await, Some(Happened::Asked("wait.test".to_owned())));
    server.cut();
    assert_eq!(happened.recv().await, Some(Happened::Withdrawn));
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
    server.wait_for("initialized", 2).await;
    ask(&server, 1, question("allow.test"));
    assert_eq!(server.wait_for_answer(1).await["result"]["decision"]["type"], "allow");
}

#[tokio::test]
async fn a_decider_that_panics_is_an_error() {
    let server = ScriptedServer::new();
    let (client, _process, _happened) = deciding_client(&server).await;
    ask(&server, 1, question("panic.test"));
    assert_eq!(server.wait_for_answer(1).await["error"]["code"], -32603);
    assert!(client.environment_status().await.is_ok());
}

#[tokio::test]
async fn questions_beyond_the_limit_are_answered_with_no_at_once() {
    let server = ScriptedServer::new();
    let (_client, _process, mut happened) = deciding_client(&server).await;
    for id in 0..256 {
        ask(&server, id, question("wait.test"));
    }
    ask(&server, 256, question("allow.test"));
    assert_eq!(server.wait_for_answer(256).await["result"]["decision"]["type"], "deny");
    for _ in 0..256 {
        assert_eq!(happened.recv().await, Some(Happened::Asked("wait.test".to_owned())));
    }
    assert!(happened.try_recv().is_err());
}

#[tokio::test]
async fn a_reused_id_ends_the_connection_and_the_client_recovers() {
    let server = ScriptedServer::new();
    let (client, _process, mut happened) = deciding_client(&server).await;
    ask(&server, 1, question("wait.test"));
    happened.recv().await;
    server.on("initialize", |_| ScriptedReply::Silence);
    ask(&server, 1, question("allow.test"));
    let text = match wait_for_state(&client, |state| *state != ConnectionState::Connected).await {
        ConnectionState::Recovering(text) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(text, "exec-server transport disconnected: exec-server reused an in-flight request ID");
    let resumed = server.wait_for("initialize", 2).await;
    resumed.answer(ScriptedReply::Result(json!({"sessionId": "session-1"})));
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
}

#[tokio::test]
async fn the_decider_hears_of_valid_decisions_about_its_own_process() {
    let server = ScriptedServer::new();
    let (client, _process, mut happened) = deciding_client(&server).await;
    let report = json!({"processId": "p", "timestamp": "2026-08-01T10:20:30.400Z", "scope": "domain",
        "decision": "allow", "source": "baseline_policy", "reason": "allowed", "protocol": "http", "host": "one.test",
        "port": 80, "policyOverride": false});
    let change = |name: &str, value: testkit::Value| {
        let mut changed = report.clone();
        changed[name] = value;
        changed
    };
    for wrong in [
        json!({}),
        change("processId", json!("forged")),
        change("host", json!("h".repeat(254))),
        change("reason", json!("a\nb")),
        change("decision", json!("maybe")),
        change("port", json!(70_000)),
    ] {
        server.push("network/policyDecision", wrong);
    }
    server.push("network/policyDecision", report);
    assert_eq!(happened.recv().await, Some(Happened::Told("one.test".to_owned())));
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.connections_opened(), 1, "a wrong report ends nothing");
}
