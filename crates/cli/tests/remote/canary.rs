//! A pattern that is easy to recognise passes through a relayed command in both directions. It appears nowhere on the
//! relay and in no log.

use std::fs::File;
use std::process::Stdio;

use memchr::memmem::Finder;
use testkit::service::Direction;
use testkit::{TestService, base64};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{RemoteFixture, wait_for_end};

/// What is looked for. Its length is no multiple of three, so that its repetitions have all alignments in base64.
const CANARY: &str = "canary-6c1f2e7b-may-be-seen-by-no-relay.";

/// Bytes of canaries in each direction.
const STREAM_BYTES: usize = 64 << 20;

/// Finds the canary, as it is and in base64.
struct CanarySearch {
    forms: Vec<(String, Finder<'static>)>,
}

impl CanarySearch {
    fn new() -> Self {
        let encoded = (0..3).map(|alignment| {
            let text = base64(format!("{}{CANARY}", &"..."[..alignment])).as_str().unwrap().to_owned();
            // The first and the last character of the encoded canary depend on what is beside it.
            text[alignment.div_ceil(3) * 4..text.len() - 4].to_owned()
        });
        let forms = std::iter::once(CANARY.to_owned()).chain(encoded);
        Self { forms: forms.map(|form| (form.clone(), Finder::new(form.as_bytes()).into_owned())).collect() }
    }

    /// The forms of the canary that `bytes` have.
    fn found_in(&self, bytes: &[u8]) -> Vec<&str> {
        let found = self.forms.iter().filter(|(_, finder)| finder.find(bytes).is_some());
        found.map(|(form, _)| form.as_str()).collect()
    }
}

/// Canaries one after the other.
fn canaries() -> Vec<u8> {
    CANARY.as_bytes().iter().copied().cycle().take(STREAM_BYTES).collect()
}

#[tokio::test]
async fn what_passes_through_a_command_is_seen_by_no_relay_and_no_log() {
    let search = CanarySearch::new();
    let service = TestService::start().await;
    service.capture();
    let remote = RemoteFixture::prepared(service, &[], |command| command.env("RUST_LOG", "trace")).await;
    let client_log = remote.path("client.log");
    let mut command = remote.command(&["run", "--", "cat"]);
    command.env("RUST_LOG", "trace").stdin(Stdio::piped()).stderr(File::create(&client_log).unwrap());
    let mut child = command.spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let sent = canaries();
    let mut received = Vec::with_capacity(sent.len());
    let write = async {
        stdin.write_all(&sent).await.unwrap();
        drop(stdin);
    };
    let (read, ()) = tokio::join!(stdout.read_to_end(&mut received), write);
    read.unwrap();
    assert!(received == sent, "{} bytes", received.len());
    assert_eq!(wait_for_end(child).await.status.code(), Some(0));

    for direction in [Direction::ToExecutor, Direction::ToHarness] {
        let frames = remote.service.captured();
        let frames = frames.iter().filter(|frame| frame.direction == direction);
        let captured = frames.flat_map(|frame| frame.bytes.iter().copied()).collect::<Vec<u8>>();
        assert!(captured.len() > STREAM_BYTES, "{direction:?}: only {} bytes were captured", captured.len());
        assert_eq!(search.found_in(&captured), [""; 0], "{direction:?}");
    }
    let calls = format!("{:?}", remote.service.calls());
    let logs = [remote.executor.log(), std::fs::read_to_string(client_log).unwrap(), calls];
    for (log, party) in logs.iter().zip(["executor", "client", "service"]) {
        assert!(log.len() > 500, "the {party} has logged next to nothing: {log}");
        let is_verbose = log.contains("DEBUG") || log.contains("TRACE") || party == "service";
        assert!(is_verbose, "the {party} does not log at the most verbose level: {log}");
        assert_eq!(search.found_in(log.as_bytes()), [""; 0], "{party}");
    }
    assert_eq!(remote.service.violations(), [""; 0]);
}

/// The positive control: the messages of the same command without encryption have what the test above looks for.
#[tokio::test]
async fn the_canary_would_be_found_in_messages_that_are_not_encrypted() {
    let search = CanarySearch::new();
    let server = testkit::TestServer::start().await;
    let mut client = server.client().await;
    let script = "while printf %s \"$0\"; do :; done";
    client.start("p", &["sh", "-c", script, CANARY]).await;
    let mut messages = Vec::new();
    let mut found = Vec::new();
    while found.len() < search.forms.len() - 1 {
        messages.extend_from_slice(client.event("p").await.to_string().as_bytes());
        found = search.found_in(&messages);
    }
    assert_eq!(search.found_in(CANARY.as_bytes()), [CANARY]);
    client.call("process/terminate", testkit::json!({"processId": "p"})).await;
}
