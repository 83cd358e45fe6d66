//! An executor and harnesses, as the tests of this folder need them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fetch::{Fetcher, FetcherConfig};
use parking_lot::Mutex;
use relay::{RelayIdentity, RelayPublicKey};
use remote::{
    Executor, ExecutorEvent, ExecutorHost, ExecutorSettings, Harness, HarnessConnection, HarnessSettings, Registry,
};
use testkit::TestService;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;
use transport::{MessageLimits, MessageStream, ReadEvent, TlsRoots};

/// The environment of all tests.
pub(crate) const ENVIRONMENT: &str = "env-1";

/// Longer than anything takes on a loaded machine. Reached only by a failing test.
pub(crate) const WAIT: Duration = Duration::from_secs(60);

/// Waits for something that has to happen. Panics with `what` if it does not.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT, future).await.unwrap_or_else(|_| panic!("did not happen: {what}"))
}

/// Runs all futures at the same time.
pub(crate) async fn run_together<F: Future<Output = ()> + 'static>(futures: impl IntoIterator<Item = F>) {
    let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
    for future in futures {
        tasks.spawn_local_on(future, &local);
    }
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
    };
    local.run_until(ended).await;
}

/// The registry of a service, with the credential that it accepts.
pub(crate) fn registry(service: &TestService) -> Registry {
    registry_at(&service.url())
}

/// The registry at a URL.
pub(crate) fn registry_at(url: &str) -> Registry {
    let token = credentials::bearer(TestService::TOKEN.to_owned(), None).unwrap();
    Registry::new(url, ENVIRONMENT, token, Fetcher::new(FetcherConfig::default()).unwrap()).unwrap()
}

/// A running executor. Its host hands out the streams, and keeps the events.
pub(crate) struct TestExecutor {
    pub(crate) identity: Arc<RelayIdentity>,
    pub(crate) host: Arc<TestHost>,
    streams: Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<(MessageStream, RelayPublicKey)>>>,
    closing: CancellationToken,
    leave: CancellationToken,
    task: JoinHandle<()>,
}

/// Keeps what an executor tells its host.
pub(crate) struct TestHost {
    streams: mpsc::UnboundedSender<(MessageStream, RelayPublicKey)>,
    notes: Mutex<Vec<String>>,
}

impl TestHost {
    /// A host, and the streams that it gets.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<(MessageStream, RelayPublicKey)>) {
        let (sender, streams) = mpsc::unbounded_channel();
        (Self { streams: sender, notes: Mutex::default() }, streams)
    }

    /// The events so far, as texts.
    pub(crate) fn notes(&self) -> Vec<String> {
        self.notes.lock().clone()
    }
}

impl ExecutorHost for TestHost {
    fn serve(&self, stream: MessageStream, harness: &RelayPublicKey) {
        // The test may have ended.
        let _ = self.streams.send((stream, harness.clone()));
    }

    fn note(&self, event: ExecutorEvent<'_>) {
        self.notes.lock().push(match event {
            ExecutorEvent::Registered { failure: None, .. } => "registered".to_owned(),
            ExecutorEvent::Registered { failure: Some(error), .. } => format!("not registered: {error}"),
            ExecutorEvent::Dialled { failure: None, .. } => "dialled".to_owned(),
            ExecutorEvent::Dialled { failure: Some(error), .. } => format!("not dialled: {error}"),
            ExecutorEvent::Reconnects(reason) => format!("reconnects: {reason}"),
            ExecutorEvent::HarnessRefused { reason } => format!("refused: {reason}"),
            ExecutorEvent::DirectPathUsed => "direct path used".to_owned(),
            ExecutorEvent::DirectPathLeft => "direct path left".to_owned(),
        });
    }
}

impl TestExecutor {
    /// Starts an executor, and waits until it is connected.
    pub(crate) async fn start(service: &TestService) -> Self {
        let sockets = service.upgrades(testkit::service::Leg::Executor);
        let executor = Self::start_with(registry(service)).await;
        service.wait_for_upgrades(testkit::service::Leg::Executor, sockets + 1).await;
        executor
    }

    /// Starts an executor, and waits until it is registered.
    pub(crate) async fn start_with(registry: Registry) -> Self {
        let (host, streams) = TestHost::new();
        let host = Arc::new(host);
        let identity = Arc::new(RelayIdentity::generate().unwrap());
        let settings = ExecutorSettings {
            registry,
            identity: Arc::clone(&identity),
            name: Some("executor of a test".to_owned()),
            tls_roots: TlsRoots::default(),
            limits: MessageLimits::default(),
            direct: remote::DirectListeners::default(),
        };
        let (closing, leave) = (CancellationToken::new(), CancellationToken::new());
        let registered =
            Executor::register(settings, Arc::clone(&host) as Arc<dyn ExecutorHost>, closing.clone()).await;
        let executor = registered.unwrap().unwrap();
        let left = leave.clone();
        let task = tokio::spawn(async move { executor.run(left.cancelled()).await });
        Self { identity, host, streams: Arc::new(tokio::sync::Mutex::new(streams)), closing, leave, task }
    }

    /// The next stream of a harness, and the key of the harness.
    pub(crate) async fn accept(&self) -> (MessageStream, RelayPublicKey) {
        within("a harness has connected", async { self.streams.lock().await.recv().await.unwrap() }).await
    }

    /// Sends every message of every harness back, until the executor is dropped.
    pub(crate) fn echo(&self) {
        // Only the streams are kept: an executor that outlives its service calls whoever gets the address next.
        let streams = Arc::clone(&self.streams);
        tokio::spawn(async move {
            let mut streams = streams.lock().await;
            while let Some((stream, _)) = streams.recv().await {
                tokio::spawn(echo(stream));
            }
        });
    }

    /// Leaves in order, and waits until everything has ended.
    pub(crate) async fn stop(&mut self) {
        self.closing.cancel();
        self.leave.cancel();
        within("the executor has ended", &mut self.task).await.unwrap();
    }
}

impl Drop for TestExecutor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends every message back.
pub(crate) async fn echo(mut stream: MessageStream) {
    while let Some(message) = receive(&mut stream).await {
        if !send(&mut stream, &message).await {
            return;
        }
    }
}

/// A harness that has not connected yet.
pub(crate) fn harness(service: &TestService) -> Harness {
    harness_of(registry(service))
}

/// A harness with new keys.
pub(crate) fn harness_of(registry: Registry) -> Harness {
    Harness::new(HarnessSettings {
        registry,
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        pinned_fingerprint: None,
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct: remote::DirectPolicy::default(),
    })
}

/// Connects a new harness to the executor. Both ends of the stream.
pub(crate) async fn connect(service: &TestService, executor: &TestExecutor) -> (HarnessConnection, MessageStream) {
    let connection = within("the harness is connected", harness(service).connect()).await.unwrap();
    let (stream, _) = executor.accept().await;
    (connection, stream)
}

/// Sends a message. False if the stream has ended.
pub(crate) async fn send(stream: &mut MessageStream, message: &[u8]) -> bool {
    let mut bytes = Vec::new();
    stream.framing.frame(&mut bytes, message.len(), |out| out.extend_from_slice(message));
    stream.writer.write_all(&bytes).await.is_ok()
}

/// The next message. None if the stream has ended.
pub(crate) async fn receive(stream: &mut MessageStream) -> Option<Bytes> {
    loop {
        match within("a message or the end", stream.reader.next()).await {
            Ok(ReadEvent::Message(message)) => return Some(message),
            Ok(ReadEvent::Closed(_)) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

/// Sends a message in each direction.
pub(crate) async fn exchange(harness: &mut MessageStream, executor: &mut MessageStream) {
    for (message, answer) in [(&b"question"[..], &b"answer"[..]), (&[7; 200_000], &[8; 300_000])] {
        let (sent, received) = tokio::join!(send(harness, message), receive(executor));
        assert!(sent && received.unwrap() == message);
        let (sent, received) = tokio::join!(send(executor, answer), receive(harness));
        assert!(sent && received.unwrap() == answer);
    }
}

/// Connects a new harness, which sends a message in each direction.
pub(crate) async fn connect_and_exchange(service: &TestService, executor: &TestExecutor) {
    let (mut connection, mut at_executor) = connect(service, executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
}
