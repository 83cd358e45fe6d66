//! A client that survives cuts: it reconnects, resumes its session, reads what it missed and goes on with what is
//! pushed. It handles one message at a time, so that a test can cut between any two of them.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use transport::ConnectOptions;

use crate::{Client, base64, unbase64};

/// The code that says that another connection has the session.
const STILL_ATTACHED: i64 = -32010;

/// Ids that a raw client may have used already.
const HANDSHAKE_IDS: i64 = 100;

/// A client whose connection may end at any time.
pub struct ResumingClient {
    url: String,
    session: String,
    link: Option<Client>,
    last_id: i64,
    /// Requests of the current connection that are not answered yet.
    asked: HashMap<i64, Asked>,
    /// Writes that are not known to be accepted, by write id; repeated on each new connection.
    writes: BTreeMap<u64, Value>,
    last_write: u64,
    processes: BTreeMap<String, ReceivedEvents>,
    counts: ReconnectCounts,
}

/// How it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReconnectCounts {
    /// Connections that ended.
    pub lost: usize,
    /// Connections that got as far as a resumed session.
    pub resumed: usize,
    /// Resumes that were refused because the cut connection still held the session.
    pub refused: usize,
    /// Events that came again.
    pub repeated: usize,
}

/// What is known of a process: only what came in sequence, without a hole.
#[derive(Clone, Debug, Default)]
pub struct ReceivedEvents {
    /// Everything it wrote.
    pub output: Vec<u8>,
    /// The last event that is known.
    pub last_seq: u64,
    /// Its exit code, after the exit.
    pub exit_code: Option<i64>,
    /// Nothing will follow.
    pub closed: bool,
    /// Events that came before one that is still missing.
    early: BTreeMap<u64, Event>,
}

#[derive(Clone, Debug)]
enum Event {
    Output(Vec<u8>),
    Exited(i64),
    Closed,
}

enum Asked {
    Initialize,
    Start,
    Read { process: String, after: u64 },
    Write(u64),
    CloseStdin,
}

impl ResumingClient {
    /// Connects and opens a session.
    pub async fn connect(url: &str) -> Self {
        let mut client = Client::connect(url).await;
        client.handshake(None).await;
        Self {
            url: url.to_owned(),
            session: client.session.clone(),
            link: Some(client),
            last_id: HANDSHAKE_IDS,
            asked: HashMap::new(),
            writes: BTreeMap::new(),
            last_write: 0,
            processes: BTreeMap::new(),
            counts: ReconnectCounts::default(),
        }
    }

    /// Starts a process. The connection must hold until the answer is here.
    pub async fn start(&mut self, process: &str, params: Value) {
        self.processes.insert(process.to_owned(), ReceivedEvents::default());
        self.ask("process/start", params, Asked::Start).await;
        let id = self.last_id;
        while self.asked.contains_key(&id) {
            assert!(self.is_connected(), "the connection ended during a start");
            self.step().await;
        }
    }

    /// Writes to a process, once, however often the connection ends meanwhile.
    pub async fn write(&mut self, process: &str, bytes: &[u8]) {
        self.last_write += 1;
        let number = self.last_write;
        let params = json!({"processId": process, "chunk": base64(bytes), "writeId": number.to_string()});
        self.writes.insert(number, params.clone());
        self.ask("process/write", params, Asked::Write(number)).await;
    }

    /// Ends the stdin of a process. To be repeated if the connection ends before the answer.
    pub async fn close_stdin(&mut self, process: &str) {
        while !self.is_resumed() {
            self.step().await;
        }
        self.ask("process/closeStdin", json!({"processId": process}), Asked::CloseStdin).await;
    }

    /// Whether there is a connection that is not known to have ended.
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn is_resumed(&self) -> bool {
        self.is_connected() && !self.asked.values().any(|asked| matches!(asked, Asked::Initialize))
    }

    /// Handles the next message, or the end of the connection, or makes a new one.
    pub async fn step(&mut self) {
        let Some(client) = &mut self.link else { return self.reconnect().await };
        match client.receive().await {
            Some(message) => self.handle(&message).await,
            None => {
                self.counts.lost += 1;
                self.link = None;
            }
        }
    }

    /// What is known of a process.
    pub fn received(&self, process: &str) -> &ReceivedEvents {
        &self.processes[process]
    }

    /// What is known of all of them.
    pub fn processes(&self) -> &BTreeMap<String, ReceivedEvents> {
        &self.processes
    }

    /// How it went so far.
    pub fn counts(&self) -> ReconnectCounts {
        self.counts
    }

    async fn reconnect(&mut self) {
        self.asked.clear();
        if let Ok(client) = Client::connect_with(&self.url, ConnectOptions::default()).await {
            self.link = Some(client);
            let params = json!({"clientName": "testkit", "resumeSessionId": self.session});
            self.ask("initialize", params, Asked::Initialize).await;
        }
    }

    async fn ask(&mut self, method: &str, params: Value, asked: Asked) {
        self.last_id += 1;
        self.asked.insert(self.last_id, asked);
        self.send(&json!({"id": self.last_id, "method": method, "params": params})).await;
    }

    async fn send(&mut self, message: &Value) {
        if let Some(client) = &mut self.link {
            // A connection that just broke says so at the next read.
            let _ = client.try_send_text(&message.to_string()).await;
        }
    }

    async fn handle(&mut self, message: &Value) {
        if message.get("method").is_some() {
            return self.note_pushed(message);
        }
        let id = message["id"].as_i64().unwrap();
        match self.asked.remove(&id).expect("an answer belongs to a request") {
            Asked::Initialize if message["error"]["code"] == STILL_ATTACHED => {
                self.counts.refused += 1;
                self.link = None;
            }
            Asked::Initialize => {
                assert_eq!(message["result"]["sessionId"], self.session, "{message}");
                self.counts.resumed += 1;
                self.catch_up().await;
            }
            Asked::Start | Asked::CloseStdin => assert!(message.get("result").is_some(), "{message}"),
            Asked::Read { process, after } => self.note_page(&process, after, &message["result"]),
            Asked::Write(number) => {
                assert_eq!(message["result"]["status"], "accepted", "{message}");
                self.writes.remove(&number);
            }
        }
    }

    /// Asks for what was missed, and repeats what was not answered.
    async fn catch_up(&mut self) {
        self.send(&json!({"method": "initialized", "params": {}})).await;
        let open = self.processes.iter().filter(|(_, received)| !received.closed);
        let open: Vec<_> = open.map(|(process, received)| (process.clone(), received.last_seq)).collect();
        for (process, after) in open {
            let params = json!({"processId": process, "afterSeq": after});
            self.ask("process/read", params, Asked::Read { process, after }).await;
        }
        for (number, params) in self.writes.clone() {
            self.ask("process/write", params, Asked::Write(number)).await;
        }
    }

    fn note_pushed(&mut self, message: &Value) {
        let params = &message["params"];
        let event = match message["method"].as_str().unwrap() {
            "process/output" => Event::Output(unbase64(&params["chunk"])),
            "process/exited" => Event::Exited(params["exitCode"].as_i64().unwrap()),
            "process/closed" => Event::Closed,
            other => panic!("unexpected notification {other}"),
        };
        self.note(params["processId"].as_str().unwrap(), params["seq"].as_u64().unwrap(), event);
    }

    /// An answer holds every event after `after` and before its `nextSeq`.
    fn note_page(&mut self, process: &str, after: u64, page: &Value) {
        let next = page["nextSeq"].as_u64().unwrap();
        assert_ne!(page["gap"], true, "output of {process} after {after} is gone: {}", page["droppedBytes"]);
        let mut events = BTreeMap::new();
        for chunk in page["chunks"].as_array().unwrap() {
            let bytes = unbase64(&chunk["chunk"]);
            events.insert(chunk["seq"].as_u64().unwrap(), Event::Output(bytes));
        }
        if let Some(seq) = page["exitSeq"].as_u64().filter(|seq| *seq > after && *seq < next) {
            events.insert(seq, Event::Exited(page["exitCode"].as_i64().unwrap()));
        }
        if page["closed"] == true {
            events.entry(next - 1).or_insert(Event::Closed);
        }
        for (seq, event) in events {
            self.note(process, seq, event);
        }
    }

    fn note(&mut self, process: &str, seq: u64, event: Event) {
        let received = self.processes.get_mut(process).unwrap();
        if seq <= received.last_seq || received.early.insert(seq, event).is_some() {
            self.counts.repeated += 1;
        }
        received.settle();
    }
}

impl ReceivedEvents {
    /// Takes over what follows without a hole.
    fn settle(&mut self) {
        while let Some(event) = self.early.remove(&(self.last_seq + 1)) {
            self.last_seq += 1;
            assert!(!self.closed, "nothing follows a close");
            match event {
                Event::Output(bytes) => self.output.extend(bytes),
                Event::Exited(code) => assert_eq!(self.exit_code.replace(code), None, "it exits once"),
                Event::Closed => self.closed = true,
            }
        }
    }
}
