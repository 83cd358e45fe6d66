//! The program behind an executor that has no server of its own. For each stream of a harness it opens a connection to
//! another server, the *destination*, and passes messages between the two. Start with [`Forwarder`]; `passing` moves
//! the messages of one stream.
//!
//! The forwarder does not read the messages. Sessions and processes belong to the destination, which sees all harnesses
//! as the same client: the one whose token the forwarder sends.

mod passing;

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use relay::RelayPublicKey;
use session::LogRateLimit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use transport::{ConnectError, ConnectOptions, MessageStream};

use crate::executor::{ExecutorEvent, ExecutorHost};
use crate::executor_log::ExecutorLog;

/// How long one attempt to connect to the destination may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How many bytes are read from a harness while the destination is not connected, or does not read. Further bytes stay
/// in the stream.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// How long [`Forwarder::leave`] waits for the streams to end.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// At most 5 log lines in a minute about failed connections to the destination, because each harness can cause one.
const DESTINATION_LINES: LogRateLimit = LogRateLimit::new(5, Duration::from_secs(60));

/// The server to which streams are forwarded.
#[derive(Clone, Debug)]
pub struct ForwardDestination {
    /// `ws://HOST`, `wss://HOST` or `unix:///PATH`.
    pub url: String,
    /// The token and the certificates for this server. Messages are always sent in binary frames, so `is_binary` has no
    /// meaning here.
    pub options: ConnectOptions,
}

/// Forwards the streams of harnesses to a destination. A clone is another handle to the same forwarder.
#[derive(Clone, Debug)]
pub struct Forwarder {
    shared: Arc<ForwarderShared>,
}

#[derive(Debug)]
struct ForwarderShared {
    destination: ForwardDestination,
    executor_log: ExecutorLog,
    destination_log: Mutex<LogRateLimit>,
    tasks: TaskTracker,
    leaving: CancellationToken,
}

impl Forwarder {
    /// A forwarder to this destination. Connects only later, once for each stream of a harness. Fails if the URL cannot
    /// be used.
    pub fn new(destination: ForwardDestination) -> Result<Self, ConnectError> {
        transport::check_url(&destination.url)?;
        let shared = ForwarderShared {
            destination,
            executor_log: ExecutorLog::default(),
            destination_log: Mutex::new(DESTINATION_LINES),
            tasks: TaskTracker::new(),
            leaving: CancellationToken::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Ends all streams, and waits up to 2 s until both ends of each stream were told the reason. A stream whose
    /// destination is not connected yet ends without a reason.
    pub async fn leave(&self) {
        self.shared.leaving.cancel();
        self.shared.tasks.close();
        let _ = tokio::time::timeout(LEAVE_TIMEOUT, self.shared.tasks.wait()).await;
    }
}

impl ExecutorHost for Forwarder {
    fn serve(&self, stream: MessageStream, _harness: &RelayPublicKey) {
        let shared = Arc::clone(&self.shared);
        self.shared.tasks.spawn(async move { shared.forward(stream).await });
    }

    fn note(&self, event: ExecutorEvent<'_>) {
        self.shared.executor_log.note(&event);
    }
}

impl ForwarderShared {
    async fn forward(&self, mut harness: MessageStream) {
        let connecting = tokio::time::timeout(CONNECT_TIMEOUT, self.connect());
        let connected = tokio::select! {
            connected = connecting => connected,
            () = harness.reader.wait_for_end(READ_AHEAD_BYTES) => return,
            () = self.leaving.cancelled() => return,
        };
        let problem = match connected {
            Ok(Ok(destination)) => return passing::pass(harness, destination, &self.leaving).await,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
        };
        if self.destination_log.lock().handle_event(Instant::now()).is_some() {
            tracing::warn!("a harness was turned away, because the destination cannot be used: {problem}");
        }
        // The harness must not learn the address of the destination, so it gets a text without details.
        passing::refuse(
            harness,
            "the server behind this environment cannot be reached; see the log of its forwarder",
        )
        .await;
    }

    async fn connect(&self) -> Result<MessageStream, ConnectError> {
        // A binary stream would drop the text frames that a destination may send.
        let options = ConnectOptions { is_binary: false, ..self.destination.options.clone() };
        transport::connect(&self.destination.url, options).await
    }
}

#[cfg(test)]
mod tests {
    use relay::RelayIdentity;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use transport::{MessageLimits, ReadEvent, in_memory};

    use super::*;

    fn forwarder_to(url: String) -> Forwarder {
        Forwarder::new(ForwardDestination { url, options: ConnectOptions::default() }).unwrap()
    }

    /// Gives the forwarder a stream, and returns the harness end of this stream.
    fn serve(forwarder: &Forwarder) -> MessageStream {
        let (stream, harness) = in_memory(MessageLimits::default());
        forwarder.serve(stream, &RelayIdentity::generate().unwrap().public_key());
        harness
    }

    /// Accepts a connection, and waits until the first bytes of the WebSocket request have arrived.
    async fn accept_request(listener: &TcpListener) -> TcpStream {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut first_line = [0; 16];
        socket.read_exact(&mut first_line).await.unwrap();
        assert_eq!(&first_line, b"GET / HTTP/1.1\r\n");
        socket
    }

    #[tokio::test]
    async fn a_harness_that_leaves_and_a_forwarder_that_leaves_end_an_unfinished_handshake_with_the_destination() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = forwarder_to(format!("ws://{}", listener.local_addr().unwrap()));
        let mut rest = Vec::new();

        let harness = serve(&forwarder);
        let mut socket = accept_request(&listener).await;
        drop(harness);
        socket.read_to_end(&mut rest).await.unwrap();

        let _harness = serve(&forwarder);
        let mut socket = accept_request(&listener).await;
        forwarder.leave().await;
        socket.read_to_end(&mut rest).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_destination_that_does_not_answer_the_handshake_is_given_up_and_the_harness_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarder = forwarder_to(format!("ws://{}", listener.local_addr().unwrap()));
        let mut harness = serve(&forwarder);
        let ReadEvent::Closed(Some(told)) = harness.reader.next().await.unwrap() else { panic!("no close frame") };
        assert!(told.reason.starts_with("the server behind this environment cannot be reached"), "{}", told.reason);
    }
}
