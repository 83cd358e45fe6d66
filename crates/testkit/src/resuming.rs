//! A client that survives lost connections: it reconnects, resumes its session, reads the events that it missed, and
//! continues with the events that the server pushes (sends as notifications). Each call of
//! [`step`](ResumingClient::step) handles one message, so that a test can cut the connection between any two
//! messages.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use transport::ConnectOptions;

use crate::{Client, base64, unbase64};

/// Error code for a session that is still attached to another connection.
const STILL_ATTACHED: i64 = -32010;

/// Request ids of this client are higher than this number. [`Client`] uses lower ids for the first handshake.
const LAST_RESERVED_ID: i64 = 100;

/// A client that resumes its session over as many connections as needed.
pub struct ResumingClient {
    url: String,
    session: String,
    connection: Option<Client>,
    last_id: i64,
    /// Requests of the current connection that are not answered yet, by id.
    pending: HashMap<i64, PendingRequest>,
    /// Params of the writes that are not answered yet, by write id. They are sent again over each new connection.
    writes: BTreeMap<u64, Value>,
    last_write_id: u64,
    /// The events of each process, by process id.
    processes: BTreeMap<String, ReceivedEvents>,
    counts: ReconnectCounts,
}

/// Counts of what has happened to the connections and the events of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconnectCounts {
    /// How many connections ended without the client closing them.
    pub lost: usize,
    /// How many connections resumed the session.
    pub resumed: usize,
    /// How many resumes the server refused because an earlier connection still had the session.
    pub refused: usize,
    /// How many events arrived that had arrived before.
    pub repeated: usize,
}

/// The events of a process up to the first one that is missing. Later events are kept until it arrives.
#[derive(Clone, Debug, Default)]
pub struct ReceivedEvents {
    /// All output up to `last_seq`.
    pub output: Vec<u8>,
    /// Sequence number of the last event without a gap before it.
    pub last_seq: u64,
    /// Exit code. None until the process has exited.
    pub exit_code: Option<i64>,
    /// Whether `process/closed` has arrived, after which no event follows.
    pub closed: bool,
    /// Events that arrived although an event before them is still missing, by sequence number.
    early: BTreeMap<u64, ProcessEvent>,
}

#[derive(Clone, Debug)]
enum ProcessEvent {
    Output(Vec<u8>),
    Exited(i64),
    Closed,
}

/// A request that is not answered yet, with the values that are needed to handle the answer.
enum PendingRequest {
    Initialize,
    Start,
    /// Asks for the events of `process` with a sequence number above `after`.
    Read {
        process: String,
        after: u64,
    },
    /// Holds the write id.
    Write(u64),
    CloseStdin,
}

impl ResumingClient {
    /// Connects and opens a new session.
    pub async fn connect(url: &str) -> Self {
        let mut client = Client::connect(url).await;
        client.handshake(None).await;
        Self {
            url: url.to_owned(),
            session: client.session.clone(),
            connection: Some(client),
            last_id: LAST_RESERVED_ID,
            pending: HashMap::new(),
            writes: BTreeMap::new(),
            last_write_id: 0,
            processes: BTreeMap::new(),
            counts: ReconnectCounts::default(),
        }
    }

    /// Starts a process and waits for the answer. `params` are those of `process/start`, and `process` is the process
    /// id in them. Panics if the connection ends before the answer.
    pub async fn start(&mut self, process: &str, params: Value) {
        self.processes.insert(process.to_owned(), ReceivedEvents::default());
        self.request("process/start", params, PendingRequest::Start).await;
        let id = self.last_id;
        while self.pending.contains_key(&id) {
            assert!(self.is_connected(), "the connection ended during a start");
            self.step().await;
        }
    }

    /// Writes to a process. Until the write is answered, it is repeated over each new connection, with the same write
    /// id.
    pub async fn write(&mut self, process: &str, bytes: &[u8]) {
        self.last_write_id += 1;
        let number = self.last_write_id;
        let params = json!({"processId": process, "chunk": base64(bytes), "writeId": number.to_string()});
        self.writes.insert(number, params.clone());
        self.request("process/write", params, PendingRequest::Write(number)).await;
    }

    /// Closes the stdin of a process without waiting for the answer. The test must repeat the call if the connection
    /// ends before the answer.
    pub async fn close_stdin(&mut self, process: &str) {
        while !self.is_attached() {
            self.step().await;
        }
        self.request("process/closeStdin", json!({"processId": process}), PendingRequest::CloseStdin).await;
    }

    /// Whether there is a connection that has not ended, as far as the client knows.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether there is a connection that has the session, as far as the client knows.
    fn is_attached(&self) -> bool {
        self.is_connected() && !self.pending.values().any(|request| matches!(request, PendingRequest::Initialize))
    }

    /// Handles one message or the end of the connection. Without a connection, tries once to reconnect instead.
    pub async fn step(&mut self) {
        let Some(client) = &mut self.connection else { return self.reconnect().await };
        match client.receive().await {
            Some(message) => self.handle(&message).await,
            None => {
                self.counts.lost += 1;
                self.connection = None;
            }
        }
    }

    /// The events of a process so far.
    pub fn received(&self, process: &str) -> &ReceivedEvents {
        &self.processes[process]
    }

    /// The events of all processes so far, by process id.
    pub fn processes(&self) -> &BTreeMap<String, ReceivedEvents> {
        &self.processes
    }

    /// Counts of what has happened to the connections and the events so far.
    pub fn counts(&self) -> ReconnectCounts {
        self.counts
    }

    async fn reconnect(&mut self) {
        self.pending.clear();
        if let Ok(client) = Client::connect_with(&self.url, ConnectOptions::default()).await {
            self.connection = Some(client);
            let params = json!({"clientName": "testkit", "resumeSessionId": self.session});
            self.request("initialize", params, PendingRequest::Initialize).await;
        }
    }

    async fn request(&mut self, method: &str, params: Value, request: PendingRequest) {
        self.last_id += 1;
        self.pending.insert(self.last_id, request);
        self.send(&json!({"id": self.last_id, "method": method, "params": params})).await;
    }

    async fn send(&mut self, message: &Value) {
        if let Some(client) = &mut self.connection {
            // If the connection has just ended, the next read reports it.
            let _ = client.try_send_text(&message.to_string()).await;
        }
    }

    async fn handle(&mut self, message: &Value) {
        if message.get("method").is_some() {
            return self.add_pushed(message);
        }
        let id = message["id"].as_i64().unwrap();
        match self.pending.remove(&id).expect("an answer belongs to a request") {
            PendingRequest::Initialize if message["error"]["code"] == STILL_ATTACHED => {
                self.counts.refused += 1;
                self.connection = None;
            }
            PendingRequest::Initialize => {
                assert_eq!(message["result"]["sessionId"], self.session, "{message}");
                self.counts.resumed += 1;
                self.catch_up().await;
            }
            PendingRequest::Start | PendingRequest::CloseStdin => {
                assert!(message.get("result").is_some(), "{message}");
            }
            PendingRequest::Read { process, after } => self.add_page(&process, after, &message["result"]),
            PendingRequest::Write(number) => {
                assert_eq!(message["result"]["status"], "accepted", "{message}");
                self.writes.remove(&number);
            }
        }
    }

    /// Completes the handshake, asks for events that were missed, and repeats writes that were not answered.
    async fn catch_up(&mut self) {
        self.send(&json!({"method": "initialized", "params": {}})).await;
        let open = self.processes.iter().filter(|(_, received)| !received.closed);
        let open: Vec<_> = open.map(|(process, received)| (process.clone(), received.last_seq)).collect();
        for (process, after) in open {
            let params = json!({"processId": process, "afterSeq": after});
            self.request("process/read", params, PendingRequest::Read { process, after }).await;
        }
        for (number, params) in self.writes.clone() {
            self.request("process/write", params, PendingRequest::Write(number)).await;
        }
    }

    fn add_pushed(&mut self, message: &Value) {
        let params = &message["params"];
        let event = match message["method"].as_str().unwrap() {
            "process/output" => ProcessEvent::Output(unbase64(&params["chunk"])),
            "process/exited" => ProcessEvent::Exited(params["exitCode"].as_i64().unwrap()),
            "process/closed" => ProcessEvent::Closed,
            other => panic!("unexpected notification {other}"),
        };
        self.add_event(params["processId"].as_str().unwrap(), params["seq"].as_u64().unwrap(), event);
    }

    /// Adds the events of `page`, an answer to `process/read`. The answer covers every event after `after` and before
    /// its `nextSeq`.
    fn add_page(&mut self, process: &str, after: u64, page: &Value) {
        let next = page["nextSeq"].as_u64().unwrap();
        assert_ne!(page["gap"], true, "output of {process} after {after} is gone: {}", page["droppedBytes"]);
        let mut events = BTreeMap::new();
        for chunk in page["chunks"].as_array().unwrap() {
            let bytes = unbase64(&chunk["chunk"]);
            events.insert(chunk["seq"].as_u64().unwrap(), ProcessEvent::Output(bytes));
        }
        if let Some(seq) = page["exitSeq"].as_u64().filter(|seq| *seq > after && *seq < next) {
            events.insert(seq, ProcessEvent::Exited(page["exitCode"].as_i64().unwrap()));
        }
        if page["closed"] == true {
            // The close is the last event of a process, so its sequence number is the one before `nextSeq`.
            events.entry(next - 1).or_insert(ProcessEvent::Closed);
        }
        for (seq, event) in events {
            self.add_event(process, seq, event);
        }
    }

    fn add_event(&mut self, process: &str, seq: u64, event: ProcessEvent) {
        let received = self.processes.get_mut(process).unwrap();
        if seq <= received.last_seq || received.early.insert(seq, event).is_some() {
            self.counts.repeated += 1;
        }
        received.apply_in_order();
    }
}

impl ReceivedEvents {
    /// Applies early events for as long as no event before them is missing.
    fn apply_in_order(&mut self) {
        while let Some(event) = self.early.remove(&(self.last_seq + 1)) {
            self.last_seq += 1;
            assert!(!self.closed, "no event follows a close");
            match event {
                ProcessEvent::Output(bytes) => self.output.extend(bytes),
                ProcessEvent::Exited(code) => {
                    assert_eq!(self.exit_code.replace(code), None, "the process exits only once");
                }
                ProcessEvent::Closed => self.closed = true,
            }
        }
    }
}
