//! Tests of one connection over a pipe in memory.

mod network_policy;

use protocol::ProcessId;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use transport::{MessageLimits, PeerLabel, Principal};

use super::*;
use crate::config::Config;
use crate::session::StartOutcome;

/// Capacity of the pipe. Large enough for all messages of a test, so that no write waits.
const PIPE_BYTES: usize = 64 << 10;

/// A client on a connection in memory.
struct MemoryClient {
    requests: WriteHalf<DuplexStream>,
    answers: Lines<BufReader<ReadHalf<DuplexStream>>>,
}

impl MemoryClient {
    fn connect(shared: &Arc<ServerState>) -> Self {
        Self::connect_as(shared, Transport::stdio)
    }

    fn connect_as(shared: &Arc<ServerState>, transport: Transport) -> Self {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let (read, write) = tokio::io::split(theirs);
        let stream = transport::lines(read, write, PeerLabel::new("memory"), MessageLimits::default());
        let accepted = AcceptedStream { stream, principal: Principal::Anybody };
        shared.connections.spawn(serve(accepted, transport, Arc::clone(shared)));
        let (read, requests) = tokio::io::split(ours);
        Self { requests, answers: BufReader::new(read).lines() }
    }

    async fn send(&mut self, message: Value) {
        self.requests.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// Opens a session, or resumes the session `resume`, and returns the id of the session.
    async fn handshake(&mut self, resume: Option<&str>) -> String {
        let params = json!({"clientName": "test", "resumeSessionId": resume});
        self.send(json!({"id": 1, "method": "initialize", "params": params})).await;
        let answer = self.next().await;
        self.send(json!({"method": "initialized", "params": {}})).await;
        answer["result"]["sessionId"].as_str().unwrap().to_owned()
    }

    async fn next(&mut self) -> Value {
        serde_json::from_str(&self.answers.next_line().await.unwrap().unwrap()).unwrap()
    }
}

#[tokio::test]
async fn a_write_that_waited_for_a_failed_start_does_not_wait_for_the_next_process_with_that_id() {
    let shared = ServerState::new(Config::default(), spawn::HostProcess::shared()).unwrap();
    let mut client = MemoryClient::connect(&shared);
    client.handshake(None).await;
    let session = shared.sessions.all().remove(0);
    let table = &session.table;
    let id = ProcessId::from("p");
    // A start of the process `p` that is under way and fails below.
    let failing = table.reserve(&id, Vec::new(), session.tags.next(), 1).unwrap();
    let write = json!({"processId": "p", "chunk": "eA=="});
    client.send(json!({"id": 2, "method": "process/write", "params": write})).await;
    client.send(json!({"id": 3, "method": "environment/status", "params": {}})).await;
    assert_eq!(client.next().await["id"], 3, "the write waits for the start");

    // The start fails, and the client starts another process `p` before the waiting write learns of the failure.
    let waiting = table.abandon(&failing).unwrap();
    assert_eq!(waiting.len(), 1);
    let next = table.reserve(&id, Vec::new(), session.tags.next(), 1).unwrap();
    waiting.into_iter().for_each(|deferred| deferred(StartOutcome::Failed));
    let waiting_for_next = table.abandon(&next).unwrap();
    assert_eq!(waiting_for_next.len(), 0, "the write was meant for the first process and must not wait for this one");
    assert_eq!(client.next().await, json!({"id": 2, "result": {"status": "unknownProcess"}}));
}
