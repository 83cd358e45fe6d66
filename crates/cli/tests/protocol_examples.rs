//! Checks that docs/protocol.md is true: every example in it is replayed against the real server, and every method,
//! notification and error code has an example.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::collections::{BTreeMap, BTreeSet};

use protocol::{ErrorCode, Method, PathUri, notification};
use tempfile::TempDir;
use testkit::{Client, TestServer, Value, eventually_async, http_get, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const DOCUMENT: &str = include_str!("../../../docs/protocol.md");

/// In the document, a placeholder `<name>` without quotes stands for a value of any type. Before a line is parsed as
/// JSON, each such placeholder is replaced by an object with this key, whose value is the name.
const PLACEHOLDER_KEY: &str = "<>";

/// Name of the placeholder for an empty directory. Each example gets a directory of its own.
const FOLDER: &str = "folder";

/// Name of the placeholder for the URL of a [`Web`] server.
const WEB: &str = "web";

/// Name of the placeholder for the port of a [`Web`] server. It stands without quotes.
const PORT: &str = "port";

/// The first bytes of each request that a [`Web`] server knows, and the response. The body of the second response
/// never ends.
const WEB_PAGES: [(&str, &str); 2] = [
    ("GET /hello ", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello\n"),
    ("GET /endless ", "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello\n"),
];

/// Lines of an example that are no messages. They say what happens to the connection.
const RECONNECT_LINE: &str = "# the connection is lost, and a new one made";
const SECOND_CONNECTION_LINE: &str = "# a second connection is made, and the first stays open";

#[tokio::test]
async fn the_server_answers_every_example_as_documented() {
    let examples = examples("json-rpc");
    assert!(examples.len() > 20, "the examples were not found");
    for example in examples {
        Replay::start(&example).await.run(&example).await;
    }
}

#[tokio::test]
async fn the_server_answers_every_http_example_as_documented() {
    let server = TestServer::start().await;
    let examples = examples("http");
    assert!(!examples.is_empty(), "the examples were not found");
    for step in examples.iter().flat_map(|example| example.lines.chunks(2)) {
        let [request, expected] = step else { panic!("a request without answer") };
        let request = request.text.strip_prefix("→ GET ").unwrap();
        let (path, header) = request.split_once(" with ").unwrap_or((request, ""));
        let headers: Vec<_> = header.split_once(": ").into_iter().collect();
        let answer = http_get(server.address(), path, &headers).await;
        let shown = format!("{} {}", answer.status, answer.body);
        let expected_text = expected.text.strip_prefix("← ").unwrap();
        let same = match expected_text.strip_suffix('…') {
            Some(start) => shown.starts_with(start),
            None => shown.trim_end() == expected_text,
        };
        assert!(same, "line {}: GET {request} was answered {shown:?}", expected.number);
    }
}

/// The params and the result in an example must also decode as the types of the method. `session/takenOver` needs no
/// example: it is sent only on a Unix socket with lines, and the examples use WebSockets.
#[test]
fn every_method_notification_and_error_code_has_an_example() {
    let mut missing: BTreeSet<String> = Method::ALL.iter().map(|method| method.name().to_owned()).collect();
    missing.extend(
        [
            notification::INITIALIZED,
            notification::PROCESS_OUTPUT,
            notification::PROCESS_EXITED,
            notification::PROCESS_CLOSED,
            notification::FS_CHANGED,
            notification::FS_FOUND,
            notification::HTTP_BODY_DELTA,
            notification::TCP_DATA,
            notification::TCP_FLOW,
            notification::TCP_CLOSE,
            notification::LEGACY_OUTPUT,
            notification::LEGACY_EXITED,
        ]
        .map(str::to_owned),
    );
    let codes = [
        ErrorCode::InvalidRequest,
        ErrorCode::MethodNotFound,
        ErrorCode::InvalidParams,
        ErrorCode::Internal,
        ErrorCode::NotFound,
        ErrorCode::SessionAttached,
    ];
    missing.extend(codes.map(|code| code.number().to_string()));
    for example in examples("json-rpc") {
        let mut requests: BTreeMap<String, Value> = BTreeMap::new();
        for line in &example.lines {
            let Some(message) = line.message() else { continue };
            if let Some(code) = message["error"]["code"].as_i64() {
                missing.remove(&code.to_string());
            }
            match (message.get("id"), message["method"].as_str()) {
                (Some(id), Some(_)) => drop(requests.insert(id.to_string(), message.clone())),
                (None, Some(name)) => drop(missing.remove(name)),
                (Some(id), None) if line.expected().is_some() && message.get("result").is_some() => {
                    let request = requests.remove(&id.to_string()).expect("an answer without request");
                    let method = Method::from_name(request["method"].as_str().unwrap()).unwrap();
                    let result = without_placeholders(&message["result"]);
                    // A method without params also accepts an empty object.
                    let params = Some(without_placeholders(&request["params"])).filter(|params| *params != json!({}));
                    let with_folder = |value: String| value.replace(&format!("<{FOLDER}>"), "file:///folder");
                    let fits = method
                        .check_example(&with_folder(json!(params).to_string()), &with_folder(result.to_string()));
                    fits.unwrap_or_else(|error| panic!("line {}: {error}", line.number));
                    missing.remove(method.name());
                }
                _ => {}
            }
        }
    }
    assert_eq!(missing, BTreeSet::new(), "docs/protocol.md has no example of these");
}

#[test]
fn a_placeholder_stands_for_one_value_and_all_else_must_be_equal() {
    let mut values = PlaceholderValues::new();
    let pattern = json_with_placeholders(r#"{"a":<n>,"b":"x <s> y","c":["<s>"],"d":1}"#).unwrap();
    assert_eq!(matches(&pattern, &json!({"a": 7, "b": "x 1 y", "c": ["1"], "d": 1}), &mut values), Ok(()));
    assert_eq!(values, PlaceholderValues::from([("n".into(), json!(7)), ("s".into(), json!("1"))]));
    for other in [
        json!({"a": 8, "b": "x 1 y", "c": ["1"], "d": 1}),
        json!({"a": 7, "b": "x 2 y", "c": ["2"], "d": 1}),
        json!({"a": 7, "b": "x 1 y", "c": ["1", "1"], "d": 1}),
        json!({"a": 7, "b": "x 1 y", "c": ["1"], "d": 2}),
        json!({"a": 7, "b": "x 1 y", "c": ["1"]}),
        json!({"a": 7, "b": "x 1 y", "c": ["1"], "d": 1, "e": 1}),
    ] {
        assert!(matches(&pattern, &other, &mut values.clone()).is_err(), "{other}");
    }
}

/// One fenced block of the document.
struct Example {
    /// The words after the language of the block: `from-connect` if the example begins before the handshake, and
    /// flags of the server.
    words: Vec<&'static str>,
    lines: Vec<ExampleLine>,
}

/// A line of an example, joined with the lines that continue it.
struct ExampleLine {
    /// Number of the first line in the document, counted from 1.
    number: usize,
    text: String,
}

impl ExampleLine {
    /// The text that the client sends.
    fn sent(&self) -> Option<&str> {
        self.text.strip_prefix("→ ")
    }

    /// The text that the server sends.
    fn expected(&self) -> Option<&str> {
        self.text.strip_prefix("← ")
    }

    /// The message of either side. `None` if the line shows no JSON.
    fn message(&self) -> Option<Value> {
        json_with_placeholders(self.sent().or(self.expected())?)
    }
}

/// All fenced blocks of the document with this language.
fn examples(language: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    let mut in_other_block = false;
    for (text, number) in DOCUMENT.lines().zip(1..) {
        match (text.strip_prefix("```"), &mut open) {
            (Some(""), Some(_)) => examples.extend(open.take()),
            (Some(_), _) if in_other_block => in_other_block = false,
            (Some(info), None) => {
                let mut words = info.split_whitespace();
                if words.next() == Some(language) {
                    open = Some(Example { words: words.collect(), lines: Vec::new() });
                } else {
                    in_other_block = true;
                }
            }
            (None, Some(example)) if text.starts_with(' ') => {
                example.lines.last_mut().expect("a line to continue").text.push_str(text.trim_start());
            }
            (None, Some(example)) => {
                let known = text.starts_with("→ ")
                    || text.starts_with("← ")
                    || [RECONNECT_LINE, SECOND_CONNECTION_LINE].contains(&text);
                assert!(known, "line {number} of the document is no line of an example: {text}");
                example.lines.push(ExampleLine { number, text: text.to_owned() });
            }
            (Some(_), Some(_)) => panic!("line {number}: a block inside a block"),
            (None, None) => {}
        }
    }
    examples
}

/// An example while it is replayed.
struct Replay {
    server: TestServer,
    client: Client,
    /// Values of the placeholders of this example so far.
    values: PlaceholderValues,
    _folder: TempDir,
    _web: Web,
    /// Method and process id of each request that has no answer yet, by request id.
    unanswered: BTreeMap<String, (String, Value)>,
}

impl Replay {
    async fn start(example: &Example) -> Self {
        let flags: Vec<_> = example.words.iter().copied().filter(|word| word.starts_with("--")).collect();
        let server = TestServer::start_with(&flags, |command| {
            command
                .current_dir("/")
                .env_remove("TMPDIR")
                .env("HOME", "/nonexistent")
                .env_remove("CODEX_HOME")
                .env("NO_PROXY", "*")
                .env("no_proxy", "*")
        })
        .await;
        let from_connect = example.words.contains(&"from-connect");
        let client = if from_connect { server.connect_without_handshake().await } else { server.client().await };
        let folder = tempfile::tempdir().expect("a directory can be made");
        let canonical = folder.path().canonicalize().ok().and_then(|path| PathUri::from_native(&path));
        let canonical = canonical.expect("the directory has a URI");
        let web = Web::start().await;
        let values = [(FOLDER, json!(canonical.as_str())), (WEB, json!(web.url)), (PORT, json!(web.port))];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into();
        Self { server, client, values, _folder: folder, _web: web, unanswered: BTreeMap::new() }
    }

    async fn run(mut self, example: &Example) {
        let mut lines = example.lines.as_slice();
        let mut idle_connections = Vec::new();
        while let Some((line, rest)) = lines.split_first() {
            lines = rest;
            if let Some(text) = line.sent() {
                self.send(text).await;
            } else if line.text == RECONNECT_LINE {
                self = self.reconnect().await;
            } else if line.text == SECOND_CONNECTION_LINE {
                let mut first = std::mem::replace(&mut self.client, self.server.connect_without_handshake().await);
                // The client answers pings only while it reads.
                idle_connections.push(tokio::spawn(async move { first.drain().await }));
            } else {
                let more = rest.iter().take_while(|line| line.expected().is_some()).count();
                self.expect(line, &rest[..more]).await;
                lines = &rest[more..];
            }
        }
        self.send(r#"{"id":"after the example","method":"environment/status"}"#).await;
        let next = self.client.next().await;
        let last = example.lines.last().expect("an example has lines").number;
        assert_eq!(next["id"], "after the example", "the example that ends in line {last} does not show {next}");
        idle_connections.iter().for_each(tokio::task::JoinHandle::abort);
    }

    async fn send(&mut self, text: &str) {
        let mut text = text.to_owned();
        for (name, value) in &self.values {
            text = text.replace(&format!("<{name}>"), &text_without_quotes(value));
        }
        if let Ok(message) = text.parse::<Value>()
            && let Some(method) = message["method"].as_str()
        {
            let request = (method.to_owned(), message["params"]["processId"].clone());
            self.unanswered.insert(message["id"].to_string(), request);
        }
        self.client.send_text(&text).await;
    }

    /// Waits for the messages of these lines. Messages on consecutive lines may come in another order, unless the
    /// document promises an order.
    async fn expect(&mut self, first: &ExampleLine, more: &[ExampleLine]) {
        let mut pending: Vec<(&ExampleLine, Value)> =
            std::iter::once(first).chain(more).map(|line| (line, line.message().expect("JSON"))).collect();
        while !pending.is_empty() {
            let actual = self.client.next().await;
            let index = pending.iter().position(|(_, pattern)| order_key(pattern) == order_key(&actual));
            let number = first.number;
            let Some(index) = index else { panic!("line {number} and below do not show {actual}") };
            let (line, pattern) = pending.remove(index);
            if let Err(difference) = matches(&pattern, &actual, &mut self.values) {
                panic!("line {}: {difference}\n  received: {actual}", line.number);
            }
            self.check_order(&actual, &pending);
        }
    }

    /// Checks two orders: the events of a process come after the answer to its start, and the answer to a terminate
    /// comes after all events of the process that are still `pending`.
    fn check_order(&mut self, actual: &Value, pending: &[(&ExampleLine, Value)]) {
        if actual.get("method").is_some() {
            let process = &actual["params"]["processId"];
            let is_start = |method: &str| method == "process/start" || method == "command/exec";
            let early = self.unanswered.values().any(|(method, started)| is_start(method) && started == process);
            assert!(!early, "an event came before the answer to its start: {actual}");
        } else if let Some((method, process)) = self.unanswered.remove(&actual["id"].to_string())
            && method.ends_with("/terminate")
        {
            let outstanding = pending.iter().find(|(_, pattern)| pattern["params"]["processId"] == process);
            assert!(outstanding.is_none(), "the answer to a terminate came before the last event of {process}");
        }
    }

    async fn reconnect(self) -> Self {
        let Self { server, client, values, _folder, _web, .. } = self;
        drop(client);
        // The server might refuse a resume before it has noticed that the old connection is gone.
        eventually_async("the server has noticed that the connection is gone", async || {
            let metrics = http_get(server.address(), "/metrics", &[]).await.body;
            metrics.contains("exec_server_connections_active{transport=\"websocket\"} 0\n").then_some(())
        })
        .await;
        let client = server.connect_without_handshake().await;
        Self { server, client, values, _folder, _web, unanswered: BTreeMap::new() }
    }
}

/// A web server with the pages [`WEB_PAGES`]. After it is dropped, it accepts no more connections.
struct Web {
    url: String,
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Web {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    // The last read returns nothing, because the client has closed the connection.
                    while let Ok(length @ 1..) = stream.read(&mut request).await {
                        let is_requested =
                            |(first_bytes, _): &&(&str, &str)| request[..length].starts_with(first_bytes.as_bytes());
                        let (_, page) = WEB_PAGES.iter().find(is_requested).expect("a page of the document");
                        stream.write_all(page.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { url: format!("http://{address}"), port: address.port(), task }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Messages with the same key must come in the order of the document. All events of one process, watch, search,
/// HTTP body or TCP stream have the same key, and each answer has a key of its own. The bool says whether the message is an event.
fn order_key(message: &Value) -> (bool, Value) {
    if message.get("method").is_none() {
        return (false, message["id"].clone());
    }
    let names = ["processId", "watchId", "searchId", "requestId", "streamId"];
    (true, names.iter().find_map(|name| message["params"].get(name)).cloned().unwrap_or_default())
}

/// The values that placeholders stand for, by the name of the placeholder.
type PlaceholderValues = BTreeMap<String, Value>;

/// Parses a line that may have placeholders as JSON. `None` if the line is not JSON.
fn json_with_placeholders(text: &str) -> Option<Value> {
    let mut out = String::new();
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '<' && !in_string {
            let name: String = rest.by_ref().take_while(|c| *c != '>').collect();
            out.push_str(&json!({PLACEHOLDER_KEY: name}).to_string());
            continue;
        }
        in_string ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        out.push(c);
    }
    out.parse().ok()
}

/// Replaces each placeholder without quotes by the number 1, so that the types of a result can be checked. In the
/// document such placeholders stand for numbers.
fn without_placeholders(value: &Value) -> Value {
    match value {
        Value::Object(members) if members.contains_key(PLACEHOLDER_KEY) => json!(1),
        Value::Object(members) => {
            members.iter().map(|(name, value)| (name.clone(), without_placeholders(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_placeholders).collect(),
        other => other.clone(),
    }
}

/// Compares a line of the document with a message. A placeholder that is new stands for any value, and the value is
/// added to `values`.
fn matches(pattern: &Value, actual: &Value, values: &mut PlaceholderValues) -> Result<(), String> {
    let differs = || Err(format!("expected {pattern}, got {actual}"));
    match (pattern, actual) {
        (Value::Object(any), _) if any.contains_key(PLACEHOLDER_KEY) => {
            let name = text_without_quotes(&any[PLACEHOLDER_KEY]);
            let known = values.entry(name).or_insert_with(|| actual.clone());
            if known == actual { Ok(()) } else { differs() }
        }
        (Value::Object(expected), Value::Object(members)) => {
            if !expected.keys().eq(members.keys()) {
                return differs();
            }
            expected.iter().try_for_each(|(name, value)| matches(value, &members[name], values))
        }
        (Value::Array(expected), Value::Array(items)) if expected.len() == items.len() => {
            expected.iter().zip(items).try_for_each(|(value, item)| matches(value, item, values))
        }
        (Value::String(expected), Value::String(text)) => {
            if text_matches(expected, text, values) {
                Ok(())
            } else {
                differs()
            }
        }
        _ if pattern == actual => Ok(()),
        _ => differs(),
    }
}

/// Like [`matches`], for a string that contains placeholders.
fn text_matches(pattern: &str, text: &str, values: &mut PlaceholderValues) -> bool {
    let Some((before, name, after)) = split_at_placeholder(pattern) else { return pattern == text };
    let Some(rest) = text.strip_prefix(before) else { return false };
    if let Some(known) = values.get(name) {
        return rest.strip_prefix(&*text_without_quotes(known)).is_some_and(|rest| text_matches(after, rest, values));
    }
    let literal = split_at_placeholder(after).map_or(after, |(literal, ..)| literal);
    let end = if literal.is_empty() { Some(rest.len()) } else { rest.find(literal) };
    let Some((value, rest)) = end.map(|end| rest.split_at(end)) else { return false };
    values.insert(name.to_owned(), json!(value));
    text_matches(after, rest, values)
}

/// The text before the first placeholder, its name, and the text after it.
fn split_at_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('<')?;
    let (name, after) = rest.split_once('>')?;
    Some((before, name, after))
}

/// A value as it stands inside a string: without quotes.
fn text_without_quotes(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
