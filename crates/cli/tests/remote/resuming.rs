//! A socket to the relay is lost: between our own ends the stream goes on, and with an end of the published protocol the
//! session goes on over a new stream.

use std::sync::Arc;

use relay::{Frame, FrameBody, RelayIdentity};
use testkit::service::{Leg, ReferenceExecutor, ReferenceFailure, ReferenceHarness, RelayKind};
use testkit::{Client, TestServer, TestService, Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use transport::{ConnectOptions, Framing, MessageStream, ReadEvent, Reader, Writer};

use crate::support::{CommandEnd, ENVIRONMENT, RemoteFixture, prepare_client, wait_for_end};

/// How many handshake frames the relay has seen. Each handshake has one from each end.
fn handshake_frames(service: &TestService) -> usize {
    let frames = service.captured();
    let bodies = frames.iter().map(|frame| Frame::decode(frame.bytes.clone()).unwrap().body);
    bodies.filter(|body| matches!(body, FrameBody::Handshake(_))).count()
}

/// Reads the numbers that `read line; echo $line` answers, with a cut before each of them.
async fn echo_with_cuts(service: &TestService, command: &mut tokio::process::Command) -> CommandEnd {
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for number in 0..6 {
        stdin.write_all(format!("{number}\n").as_bytes()).await.unwrap();
        assert_eq!(lines.next_line().await.unwrap().unwrap(), number.to_string());
        let leg = if number % 2 == 0 { Leg::Harness } else { Leg::Executor };
        let sockets = service.upgrades(leg);
        service.cut(leg);
        service.wait_for_upgrades(leg, sockets + 1).await;
    }
    drop(stdin);
    CommandEnd::from(wait_for_end(child).await)
}

const ECHO: [&str; 5] = ["run", "--", "sh", "-c", "while read line; do echo $line; done"];

#[tokio::test]
async fn a_lost_socket_is_replaced_without_a_handshake_between_our_ends() {
    let remote = RemoteFixture::start().await;
    remote.service.capture();
    let end = echo_with_cuts(&remote.service, &mut remote.command(&ECHO)).await;
    assert_eq!(end, CommandEnd::printed("", 0));
    assert_eq!((handshake_frames(&remote.service), remote.handshakes()), (2, 1));
    assert_eq!(remote.service.violations(), [""; 0]);
}

#[tokio::test]
async fn with_a_relay_of_the_published_protocol_the_session_goes_on_over_new_streams() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let remote = RemoteFixture::with_service(service, &[]).await;
    remote.service.capture();
    let end = echo_with_cuts(&remote.service, &mut remote.command(&ECHO)).await;
    // Such a relay does not say which stream is over, so the executor waits for the old one before it gives the session
    // to the new one. The client may report that.
    assert_eq!((end.stdout.as_str(), end.code), ("", Some(0)), "{end:?}");
    assert!(remote.handshakes() >= 3, "{} handshakes", remote.handshakes());
    assert_eq!(remote.service.violations(), [""; 0]);
}

/// Passes the messages of a stream on to a server, and back.
async fn serve_at(stream: MessageStream, url: Arc<str>) {
    let server = transport::connect(&url, ConnectOptions::default()).await.unwrap();
    let MessageStream { reader: from_client, writer: to_client, framing: client_framing, .. } = stream;
    let MessageStream { reader: from_server, writer: to_server, framing: server_framing, .. } = server;
    tokio::select! {
        () = pass_on(from_client, to_server, server_framing) => {}
        () = pass_on(from_server, to_client, client_framing) => {}
    }
}

async fn pass_on(mut reader: Reader, mut writer: Writer, framing: Framing) {
    while let Ok(event) = reader.next().await {
        let mut bytes = Vec::new();
        match event {
            ReadEvent::Message(message) => {
                framing.frame(&mut bytes, message.len(), |out| out.extend_from_slice(&message));
            }
            // Pings of the other side are answered by it, not here.
            ReadEvent::Ping(payload) => {
                framing.ping(&mut bytes, &payload);
            }
            ReadEvent::Pong(payload) => {
                framing.pong(&mut bytes, &payload);
            }
            ReadEvent::TooLarge { .. } | ReadEvent::Closed(_) => return,
        }
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn with_a_published_executor_the_session_goes_on_over_new_streams() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let server = TestServer::start().await;
    let url: Arc<str> = server.url().into();
    let serve = move |stream| drop(tokio::spawn(serve_at(stream, Arc::clone(&url))));
    let _executor = ReferenceExecutor::start(&service.url(), TestService::TOKEN, ENVIRONMENT, serve).await;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    service.capture();
    let folder = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new(testkit::binary());
    command.args(["run", "-e", ENVIRONMENT]).args(&ECHO[1..]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).kill_on_drop(true);
    prepare_client(&mut command, &service, folder.path());
    let end = echo_with_cuts(&service, &mut command).await;
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(handshake_frames(&service) >= 6, "{} handshake frames", handshake_frames(&service));
    assert_eq!(service.violations(), [""; 0]);
}

/// A client over a harness of the published protocol.
struct PublishedClient {
    harness: ReferenceHarness,
    last_id: i64,
}

impl PublishedClient {
    async fn connect(keys: &RelayIdentity, service: &TestService, session: Option<&str>) -> (Self, String) {
        let url = service.url();
        let connecting = ReferenceHarness::connect_as(keys, &url, TestService::TOKEN, ENVIRONMENT);
        let mut client = Self { harness: connecting.await.unwrap(), last_id: 0 };
        let params = json!({"clientName": "published", "resumeSessionId": session});
        let answer = client.call("initialize", params).await;
        let text = json!({"method": "initialized", "params": {}}).to_string();
        client.harness.send(text.as_bytes()).await.unwrap();
        (client, answer["sessionId"].as_str().unwrap().to_owned())
    }

    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let text = json!({"id": self.last_id, "method": method, "params": params}).to_string();
        self.harness.send(text.as_bytes()).await.unwrap();
        loop {
            let message: Value = serde_json::from_slice(&self.harness.receive().await.unwrap()).unwrap();
            if message["id"] == self.last_id {
                return message["result"].clone();
            }
        }
    }
}

#[tokio::test]
async fn a_published_harness_loses_its_stream_and_resumes_its_session_over_another() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let remote = RemoteFixture::with_service(service, &[]).await;
    let keys = RelayIdentity::generate().unwrap();
    let (mut client, session) = PublishedClient::connect(&keys, &remote.service, None).await;
    let mut params = Client::start_params("p", &["cat"]);
    params["pipeStdin"] = true.into();
    client.call("process/start", params).await;
    let mut expected = Vec::new();
    for leg in [Leg::Executor, Leg::Harness, Leg::Executor] {
        let chunk = vec![b'x'; 300_000];
        expected.extend_from_slice(&chunk);
        let write = json!({"processId": "p", "chunk": testkit::base64(&chunk)});
        assert_eq!(client.call("process/write", write).await["status"], "accepted");
        let sockets = remote.service.upgrades(Leg::Executor);
        remote.service.cut(leg);
        let failure = loop {
            if let Err(failure) = client.harness.receive().await {
                break failure;
            }
        };
        assert!(matches!(failure, ReferenceFailure::Reset(_) | ReferenceFailure::SocketLost), "{failure:?}");
        if leg == Leg::Executor {
            remote.service.wait_for_upgrades(leg, sockets + 1).await;
        }
        client = PublishedClient::connect(&keys, &remote.service, Some(&session)).await.0;
    }
    let mut received = Vec::new();
    let mut after = 0;
    while received.len() < expected.len() {
        let read = client.call("process/read", json!({"processId": "p", "afterSeq": after, "waitMs": 20_000})).await;
        for chunk in read["chunks"].as_array().unwrap() {
            received.extend(testkit::unbase64(&chunk["chunk"]));
        }
        after = read["nextSeq"].as_u64().unwrap() - 1;
    }
    assert!(received == expected);
    assert_eq!(remote.handshakes(), 4);
    assert_eq!(remote.service.violations(), [""; 0]);
}
