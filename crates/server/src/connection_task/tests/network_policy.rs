//! The proxy of a process, and the client that is asked and told about its decisions.

use std::net::SocketAddr;
use std::time::Duration;

use protocol::{NetworkProxyLaunch, RequestId};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::environment::Variables;
use crate::network_proxy::ProxyPlan;
use crate::process::ProxyHandle;
use crate::session::Session;

/// A proxy for the process `p` of the only session, with a target on loopback.
struct PolicyScenario {
    shared: Arc<ServerState>,
    session: Arc<Session>,
    session_id: String,
    client: MemoryClient,
    proxy: SocketAddr,
    handle: ProxyHandle,
    target: SocketAddr,
}

impl PolicyScenario {
    async fn begin(transport: Transport, domains: Value) -> Self {
        let shared = ServerState::new(Config::default(), spawn::HostProcess::shared()).unwrap();
        let mut client = MemoryClient::connect_as(&shared, transport);
        let session_id = client.handshake(None).await;
        let session = shared.sessions.all().remove(0);
        let launch: NetworkProxyLaunch = serde_json::from_value(json!({
            "proxy": {"enabled": true, "mode": "full", "allowLocalBinding": true, "domains": domains},
            "policyDecisionTimeoutMs": 30_000,
        }))
        .unwrap();
        let plan = ProxyPlan::new(&launch, &ProcessId::from("p")).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = listener.local_addr().unwrap();
        let handle = plan.launch(&shared, &session, listener.into(), &mut Variables::new()).unwrap();
        let target = target().await;
        Self { shared, session, session_id, client, proxy, handle, target }
    }

    /// Sends a request through the proxy. The task returns the whole response.
    fn request(&self) -> JoinHandle<String> {
        let (proxy, target) = (self.proxy, self.target);
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(proxy).await.unwrap();
            let request = format!("GET http://{target}/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            response
        })
    }

    /// The decision in the next message to the client.
    async fn decision(&mut self) -> (Value, Value, Value) {
        let mut report = self.client.next().await;
        assert_eq!(report["method"], "network/policyDecision", "{report}");
        let params = report["params"].take();
        assert_eq!((&params["processId"], &params["host"]), (&json!("p"), &json!("127.0.0.1")), "{params}");
        assert_eq!(params["timestamp"].as_str().unwrap().len(), "2026-08-01T10:20:30.400Z".len());
        (params["decision"].clone(), params["source"].clone(), params["reason"].clone())
    }
}

/// A web server that answers every request.
async fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // The request fits into one read.
            let _request = stream.read(&mut [0; 4096]).await;
            let _lost = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nreached").await;
        }
    });
    address
}

fn is_refusal(response: &str, reason: &str) -> bool {
    response.starts_with("HTTP/1.1 403 ") && response.ends_with(&format!(": {reason}\n"))
}

#[tokio::test]
async fn the_client_decides_about_a_host_that_is_not_listed() {
    for (answer, told, reason) in [
        (json!({"type": "allow"}), "allow", "allowed"),
        (json!({"type": "deny", "reason": "no thanks"}), "deny", "no thanks"),
        (json!({"type": "ask", "reason": "needs approval"}), "ask", "needs approval"),
    ] {
        let mut scenario = PolicyScenario::begin(Transport::stdio, json!(null)).await;
        let response = scenario.request();
        let question = scenario.client.next().await;
        let port = scenario.target.port();
        let request = json!({"protocol": "http", "host": "127.0.0.1", "port": port});
        let params = json!({"processId": "p", "request": request});
        assert_eq!(question, json!({"id": 1, "method": "network/policyRequest", "params": params}));
        scenario.client.send(json!({"id": 1, "result": {"decision": answer}})).await;
        assert_eq!(scenario.decision().await, (json!(told), json!("decider"), json!(reason)));
        let response = response.await.unwrap();
        assert!(
            if told == "allow" { response.ends_with("reached") } else { is_refusal(&response, reason) },
            "{response}"
        );
    }
}

#[tokio::test]
async fn a_listed_host_is_decided_without_the_client() {
    let mut scenario = PolicyScenario::begin(Transport::stdio, json!({"127.0.0.1": "deny"})).await;
    assert!(is_refusal(&scenario.request().await.unwrap(), "denied"));
    assert_eq!(scenario.decision().await, (json!("deny"), json!("baseline_policy"), json!("denied")));
}

#[tokio::test]
async fn invalid_answers_are_refusals() {
    let long = "x".repeat(1025);
    for answer in [
        json!({"result": {"decision": {"type": "deny", "reason": long}}}),
        json!({"result": {"decision": {"type": "ask", "reason": "a\nb"}}}),
        json!({"result": {"decision": {"type": "allowed"}}}),
        json!({"result": true}),
        json!({"error": {"code": -32601, "message": "unknown method"}}),
    ] {
        let mut scenario = PolicyScenario::begin(Transport::stdio, json!(null)).await;
        let response = scenario.request();
        let mut answer = answer;
        answer["id"] = scenario.client.next().await["id"].take();
        scenario.client.send(answer.clone()).await;
        assert!(is_refusal(&response.await.unwrap(), "not_allowed"), "{answer}");
    }
}

#[tokio::test]
async fn the_end_of_the_process_answers_open_questions_with_no_and_keeps_the_proxy() {
    let mut scenario = PolicyScenario::begin(Transport::stdio, json!(null)).await;
    let response = scenario.request();
    scenario.client.next().await;
    scenario.handle.end_questions();
    assert!(is_refusal(&response.await.unwrap(), "not_allowed"));
    assert_eq!(scenario.decision().await.0, json!("deny"));
    assert!(is_refusal(&scenario.request().await.unwrap(), "not_allowed"), "a later question is not asked");
    assert_eq!(scenario.decision().await.0, json!("deny"));
    scenario.handle.shut_down().await;
    assert!(TcpStream::connect(scenario.proxy).await.is_err(), "the proxy has closed its socket");
}

#[tokio::test]
async fn a_late_answer_is_ignored_and_the_answer_to_no_request_ends_the_connection() {
    let mut scenario = PolicyScenario::begin(Transport::unix, json!(null)).await;
    let response = scenario.request();
    scenario.client.next().await;
    scenario.handle.end_questions();
    response.await.unwrap();
    scenario.decision().await;
    scenario.client.send(json!({"id": 1, "result": {"decision": {"type": "allow"}}})).await;
    scenario.client.send(json!({"id": 7, "method": "environment/status", "params": {}})).await;
    assert_eq!(scenario.client.next().await["id"], 7, "the connection is still used");
    scenario.client.send(json!({"id": 2, "result": {}})).await;
    let refusal = scenario.client.next().await;
    assert_eq!(refusal["error"]["message"], "no request with id 2 is waiting for an answer");
    assert!(scenario.client.answers.next_line().await.unwrap().is_none(), "the connection is closed");
}

#[tokio::test]
async fn a_lost_connection_answers_open_questions_with_no() {
    let mut scenario = PolicyScenario::begin(Transport::unix, json!(null)).await;
    let response = scenario.request();
    scenario.client.next().await;
    let mut next = MemoryClient::connect_as(&scenario.shared, Transport::unix);
    drop(scenario.client);
    while scenario.session.outbound().is_some() {
        tokio::task::yield_now().await;
    }
    next.handshake(Some(&scenario.session_id)).await;
    scenario.client = next;
    // The decision was made while no client was attached, and waited for the next one.
    assert_eq!(scenario.decision().await, (json!("deny"), json!("decider"), json!("not_allowed")));
    assert!(is_refusal(&response.await.unwrap(), "not_allowed"));
}

#[tokio::test]
async fn an_answer_that_came_before_the_connection_ended_counts() {
    let mut scenario = PolicyScenario::begin(Transport::unix, json!(null)).await;
    let response = scenario.request();
    let id = scenario.client.next().await["id"].take();
    scenario.client.send(json!({"id": id, "result": {"decision": {"type": "allow"}}})).await;
    drop(scenario.client);
    while scenario.session.outbound().is_some() {
        tokio::task::yield_now().await;
    }
    let mut next = MemoryClient::connect_as(&scenario.shared, Transport::unix);
    next.handshake(Some(&scenario.session_id)).await;
    assert!(response.await.unwrap().ends_with("reached"));
}

#[tokio::test]
async fn without_a_client_nothing_is_asked_and_nothing_hangs() {
    let scenario = PolicyScenario::begin(Transport::stdio, json!(null)).await;
    // The session on stdio ends with its connection.
    drop(scenario.client);
    while !scenario.session.has_ended() {
        tokio::task::yield_now().await;
    }
    let (proxy, target) = (scenario.proxy, scenario.target);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut beginning = [0; 12];
    stream.read_exact(&mut beginning).await.unwrap();
    assert_eq!(&beginning, b"HTTP/1.1 403");
}

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_program_wait() {
    let mut scenario = PolicyScenario::begin(Transport::stdio, json!({"127.0.0.1": "allow"})).await;
    let outbound = scenario.session.outbound().unwrap();
    // As if other messages had used up the room of the connection.
    let room = outbound.room_for_reply(usize::MAX).await;
    let response = scenario.request();
    let mut answered = std::pin::pin!(response);
    // sleep: nothing must happen in this time
    tokio::time::timeout(Duration::from_millis(100), answered.as_mut()).await.unwrap_err();
    drop(room);
    assert!(answered.await.unwrap().ends_with("reached"));
    assert_eq!(scenario.decision().await.0, json!("allow"));
}

#[tokio::test]
async fn questions_beyond_the_limit_are_refused_at_once() {
    let mut scenario = PolicyScenario::begin(Transport::stdio, json!(null)).await;
    let outbound = scenario.session.outbound().unwrap();
    let params = json!({});
    let mut open: Vec<_> = (0..256)
        .map(|_| Box::pin(outbound.ask::<Value>("test/question", &params, Duration::from_secs(3600))))
        .collect();
    for question in &mut open {
        tokio::time::timeout(Duration::ZERO, question).await.unwrap_err();
    }
    assert!(is_refusal(&scenario.request().await.unwrap(), "not_allowed"));
    for id in 1..=256 {
        assert_eq!(scenario.client.next().await["id"], id);
    }
    assert_eq!(scenario.decision().await.0, json!("deny"));
    drop(open);
    let response = scenario.request();
    let question = scenario.client.next().await;
    assert_eq!(question["id"], 257);
    let id = serde_json::from_value::<RequestId>(question["id"].clone()).unwrap();
    outbound.take_client_answer(&id, Some(r#"{"decision":{"type":"allow"}}"#));
    assert!(response.await.unwrap().ends_with("reached"));
}
