//! The direct path: a second socket for a stream, without the relay. The executor offers the address of a proxy in
//! front of its listener, so that a test can cut the path.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;
use relay::{Frame, FrameBody, RelayIdentity};
use remote::{
    ConnectionPath, DirectDoor, DirectEntrance, DirectListeners, DirectPolicy, Executor, ExecutorHost,
    ExecutorSettings, Harness, HarnessConnection, HarnessSettings,
};
use testkit::service::{Leg, Operation, ReferenceExecutor, ReferenceHarness, RelayKind};
use testkit::{CuttingProxy, TestService, eventually, eventually_async};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use transport::{
    Accepted, ConnectError, ConnectOptions, DIRECT_PATH, HttpSurface, ListenUrl, Listener, MessageLimits,
    MessageStream, Principal, ReadEvent, TlsRoots, accept_messages,
};

use crate::support::{ENVIRONMENT, TestHost, echo, exchange, receive, registry, send, within};

/// An executor that also listens.
struct ListeningExecutor {
    host: Arc<TestHost>,
    streams: tokio::sync::Mutex<mpsc::UnboundedReceiver<(MessageStream, remote::RelayPublicKey)>>,
    listener: Arc<DoorListener>,
    proxy: CuttingProxy,
    closing: CancellationToken,
}

/// The listener of the executor, what it has seen, and how it treats tickets.
#[derive(Default)]
struct DoorListener {
    address: String,
    connections: AtomicUsize,
    /// Whether the listener refuses each ticket and keeps it in `stolen`.
    steals: AtomicBool,
    stolen: Mutex<Vec<String>>,
}

struct DoorSurface {
    listener: Arc<DoorListener>,
    door: Option<DirectDoor>,
    entrance: Mutex<Option<DirectEntrance>>,
}

impl HttpSurface for DoorSurface {
    fn authorize(&self, _: &HeaderMap) -> Option<Principal> {
        None
    }

    fn take_ticket(&self, headers: &HeaderMap) -> Option<MessageLimits> {
        let ticket = headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")?;
        if self.listener.steals.load(Ordering::SeqCst) {
            self.listener.stolen.lock().push(ticket.to_owned());
            return None;
        }
        *self.entrance.lock() = Some(self.door.as_ref()?.take_ticket(ticket)?);
        Some(DirectEntrance::LIMITS)
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn serves_host(&self, _: &str) -> bool {
        false
    }
}

impl ListeningExecutor {
    async fn start(service: &TestService, policy: DirectPolicy) -> Self {
        let url: ListenUrl = "ws://127.0.0.1:0".parse().unwrap();
        let bound = Listener::bind(&url, None).await.unwrap();
        let address = bound.url().strip_prefix("ws://").unwrap().to_owned();
        let proxy = CuttingProxy::start(&address).await;
        let listener = Arc::new(DoorListener { address, ..DoorListener::default() });
        let (host, streams) = TestHost::new();
        let host = Arc::new(host);
        let offered = proxy.url().strip_prefix("ws://").unwrap().parse().unwrap();
        let closing = CancellationToken::new();
        let executor = register(service, &host, DirectListeners { policy, addresses: vec![offered] }, &closing).await;
        tokio::spawn(closing.clone().run_until_cancelled_owned(accept(
            bound,
            Arc::clone(&listener),
            executor.direct_door(),
        )));
        let left = closing.clone();
        tokio::spawn(async move { executor.run(left.cancelled()).await });
        service.wait_for_upgrades(Leg::Executor, 1).await;
        Self { host, streams: tokio::sync::Mutex::new(streams), listener, proxy, closing }
    }

    fn offered(&self) -> SocketAddr {
        self.proxy.url().strip_prefix("ws://").unwrap().parse().unwrap()
    }

    async fn accept(&self) -> MessageStream {
        within("a harness has connected", async { self.streams.lock().await.recv().await.unwrap().0 }).await
    }

    fn times_used(&self) -> usize {
        self.host.notes().iter().filter(|note| *note == "direct path used").count()
    }

    /// Exchanges messages until the listener has stolen a ticket, and returns the ticket.
    async fn talk_until_stolen(&self, ends: &mut Ends) -> String {
        ends.talk_until("a ticket is stolen", |_| !self.listener.stolen.lock().is_empty()).await;
        self.listener.stolen.lock()[0].clone()
    }

    /// Exchanges messages until both ends use the direct path for the `times`th time. Without reads the ends would not
    /// find the control frames of the other end.
    async fn talk_until_direct(&self, ends: &mut Ends, times: usize) {
        ends.talk_until("the direct path is used", |ends| {
            ends.path() == Some(ConnectionPath::Direct(self.offered())) && self.times_used() >= times
        })
        .await;
    }
}

/// Both ends of a stream.
struct Ends {
    harness: HarnessConnection,
    executor: MessageStream,
}

impl Ends {
    async fn talk(&mut self) {
        exchange(&mut self.harness.stream, &mut self.executor).await;
    }

    async fn talk_until(&mut self, what: &str, is_done: impl Fn(&Self) -> bool) {
        eventually_async(what, async || {
            self.talk().await;
            is_done(self).then_some(())
        })
        .await;
    }

    /// Exchanges messages until the relay carries none of their frames. Frames that were on their way before may still
    /// arrive at first.
    async fn talk_around_the_relay(&mut self, service: &TestService) {
        eventually_async("the relay carries nothing", async || {
            service.capture();
            self.talk().await;
            service.captured().is_empty().then_some(())
        })
        .await;
    }

    fn path(&self) -> Option<ConnectionPath> {
        *self.harness.link.path().borrow()
    }
}

impl Drop for ListeningExecutor {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

async fn register(
    service: &TestService,
    host: &Arc<TestHost>,
    direct: DirectListeners,
    closing: &CancellationToken,
) -> Executor {
    let settings = ExecutorSettings {
        registry: registry(service),
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        name: None,
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct,
    };
    let host = Arc::clone(host) as Arc<dyn ExecutorHost>;
    Executor::register(settings, host, closing.clone()).await.unwrap().unwrap()
}

async fn accept(bound: Listener, listener: Arc<DoorListener>, door: Option<DirectDoor>) {
    while let Ok(socket) = bound.accept(|_| {}).await {
        listener.connections.fetch_add(1, Ordering::SeqCst);
        let (listener, door) = (Arc::clone(&listener), door.clone());
        let surface = Arc::new(DoorSurface { listener, door, entrance: Mutex::default() });
        tokio::spawn(async move {
            let shown = Arc::clone(&surface) as Arc<dyn HttpSurface>;
            if let Ok(Some(Accepted::TicketHolder(socket))) =
                accept_messages(socket, shown, MessageLimits::default()).await
            {
                let entrance = surface.entrance.lock().take().unwrap();
                entrance.serve(socket).await;
            }
        });
    }
}

fn harness(service: &TestService, direct: DirectPolicy) -> Harness {
    Harness::new(HarnessSettings {
        registry: registry(service),
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        pinned_fingerprint: None,
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct,
    })
}

async fn connect(service: &TestService, executor: &ListeningExecutor) -> Ends {
    connect_with(service, executor, DirectPolicy::Private).await
}

async fn connect_with(service: &TestService, executor: &ListeningExecutor, direct: DirectPolicy) -> Ends {
    let connecting = harness(service, direct);
    let harness = within("the harness is connected", connecting.connect()).await.unwrap();
    Ends { harness, executor: executor.accept().await }
}

#[tokio::test]
async fn a_stream_moves_to_a_direct_path_and_the_relay_carries_nothing_of_it() {
    let service = TestService::start().await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    let mut ends = connect(&service, &executor).await;
    ends.talk().await;
    executor.talk_until_direct(&mut ends, 1).await;
    ends.talk_around_the_relay(&service).await;
    assert_eq!(service.count(Operation::Validate), 1, "there was one handshake");

    drop(ends.harness);
    assert_eq!(receive(&mut ends.executor).await, None, "the executor learns that the harness has left");
    eventually("the path has ended", || executor.host.notes().contains(&"direct path left".to_owned()).then_some(()))
        .await;
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn a_harness_learns_over_the_direct_path_that_the_executor_has_ended_the_stream() {
    let service = TestService::start().await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    let mut ends = connect(&service, &executor).await;
    executor.talk_until_direct(&mut ends, 1).await;
    drop(ends.executor);
    assert_eq!(receive(&mut ends.harness.stream).await, None);
}

#[tokio::test]
async fn a_cut_direct_path_loses_nothing_and_is_found_again() {
    let service = TestService::start().await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    let mut ends = connect(&service, &executor).await;
    for times in 1..=3 {
        executor.talk_until_direct(&mut ends, times).await;
        // The path breaks while records are on their way in both directions.
        executor.proxy.cut_at(executor.proxy.bytes_passed() + 150_000 * times as u64);
        for _ in 0..5 {
            ends.talk().await;
        }
    }
    executor.talk_until_direct(&mut ends, 4).await;
    ends.talk_around_the_relay(&service).await;
    assert_eq!(executor.proxy.cuts_made(), 3);
    assert_eq!((service.count(Operation::Validate), service.upgrades(Leg::Harness)), (1, 1), "the relay was kept");
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn a_direct_path_does_not_need_the_relay_and_the_stream_returns_to_its_new_sockets() {
    let service = TestService::start().await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    let mut ends = connect(&service, &executor).await;
    executor.talk_until_direct(&mut ends, 1).await;
    service.refuse_upgrades(Leg::Harness, 2, 503);
    service.cut(Leg::Harness);
    service.cut(Leg::Executor);
    for _ in 0..3 {
        ends.talk().await;
    }
    service.wait_for_upgrades(Leg::Harness, 2).await;
    service.wait_for_upgrades(Leg::Executor, 2).await;
    executor.proxy.refuse(true);
    executor.proxy.cut();
    ends.talk().await;
    assert_eq!(ends.path(), Some(ConnectionPath::Relay));
    assert_eq!(service.count(Operation::Validate), 1, "there was one handshake");
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn an_address_that_never_answers_or_is_another_program_delays_nothing() {
    let service = TestService::start().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let other = Listener::bind(&"ws://127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let other_address = other.url().strip_prefix("ws://").unwrap().parse().unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    tokio::spawn(pretend(other, Arc::clone(&seen)));
    let (host, mut streams) = TestHost::new();
    let host = Arc::new(host);
    let closing = CancellationToken::new();
    let addresses = vec![silent.local_addr().unwrap(), other_address];
    let direct = DirectListeners { policy: DirectPolicy::Private, addresses };
    let executor = register(&service, &host, direct, &closing).await;
    let _stopped_with_the_test = closing.clone().drop_guard();
    tokio::spawn(async move { executor.run(closing.cancelled()).await });
    service.wait_for_upgrades(Leg::Executor, 1).await;

    let connecting = harness(&service, DirectPolicy::Private);
    let harness = within("the harness is connected", connecting.connect()).await.unwrap();
    let mut ends = Ends { harness, executor: streams.recv().await.unwrap().0 };
    let never_answered = tokio::spawn(async move { silent.accept().await.unwrap() });
    ends.talk_until("the silent address is tried", |_| never_answered.is_finished()).await;
    ends.talk_until("the addresses are given up", |ends| ends.path() == Some(ConnectionPath::Relay)).await;
    assert_eq!(seen.load(Ordering::SeqCst), 1, "the other program was tried");
    ends.talk().await;
    assert!(host.notes().iter().all(|note| !note.starts_with("direct")));
}

/// A program that accepts every upgrade, and does not know the answer of the offer.
async fn pretend(listener: Listener, seen: Arc<AtomicUsize>) {
    struct OpenDoor;
    impl HttpSurface for OpenDoor {
        fn authorize(&self, _: &HeaderMap) -> Option<Principal> {
            None
        }
        fn take_ticket(&self, _: &HeaderMap) -> Option<MessageLimits> {
            Some(DirectEntrance::LIMITS)
        }
        fn metrics(&self) -> String {
            String::new()
        }
        fn serves_host(&self, _: &str) -> bool {
            false
        }
    }
    while let Ok(socket) = listener.accept(|_| {}).await {
        let accepted = accept_messages(socket, Arc::new(OpenDoor), MessageLimits::default()).await;
        if let Ok(Some(Accepted::TicketHolder(mut stream))) = accepted {
            seen.fetch_add(1, Ordering::SeqCst);
            assert!(send(&mut stream, b"the answer of somebody else").await);
            while receive(&mut stream).await.is_some() {}
        }
    }
}

#[tokio::test]
async fn no_end_tries_a_direct_path_that_one_of_them_has_switched_off() {
    for (of_executor, of_harness) in [(DirectPolicy::Off, DirectPolicy::On), (DirectPolicy::On, DirectPolicy::Off)] {
        let service = TestService::start().await;
        let executor = ListeningExecutor::start(&service, of_executor).await;
        let mut ends = connect_with(&service, &executor, of_harness).await;
        assert_eq!(ends.path(), Some(ConnectionPath::Relay), "no direct path is searched");
        ends.talk().await;
        assert_eq!(executor.listener.connections.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_stolen_ticket_lets_nobody_into_a_stream_and_works_once() {
    let service = TestService::start().await;
    service.capture();
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    executor.listener.steals.store(true, Ordering::SeqCst);
    let mut ends = connect(&service, &executor).await;
    ends.talk().await;
    let ticket = executor.talk_until_stolen(&mut ends).await;
    executor.listener.steals.store(false, Ordering::SeqCst);

    let stream_id = Frame::decode(service.captured().last().unwrap().bytes.clone()).unwrap().stream_id;
    let mut thief = connect_with_ticket(&executor, Some(&ticket)).await.unwrap();
    assert!(receive(&mut thief).await.is_some(), "the executor greets whoever has the ticket");
    let forged = Frame { ack: 1, ack_tag: 7, ..Frame::new(stream_id, FrameBody::Resume { next_seq: 0 }) };
    assert!(send(&mut thief, &forged.encode()).await);
    assert!(matches!(within("the end", thief.reader.next()).await, Ok(ReadEvent::Closed(_)) | Err(_)));
    for refused in [Some(ticket.as_str()), Some("a ticket that was never given out"), Some(""), None] {
        let status = match connect_with_ticket(&executor, refused).await {
            Err(ConnectError::Refused { status, .. }) => status,
            other => panic!("{other:?}"),
        };
        assert_eq!(status, 404, "{refused:?}");
    }

    ends.talk().await;
    executor.talk_until_direct(&mut ends, 1).await;
    ends.talk_around_the_relay(&service).await;
    assert_eq!(executor.times_used(), 1, "the thief never moved the stream");
}

#[tokio::test]
async fn a_holder_of_one_stream_cannot_move_another() {
    let service = TestService::start().await;
    service.capture();
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    let mut victim = connect(&service, &executor).await;
    executor.talk_until_direct(&mut victim, 1).await;
    let captured = service.captured();
    let frames: Vec<_> = captured.iter().map(|frame| Frame::decode(frame.bytes.clone()).unwrap()).collect();
    let proven = frames.iter().rfind(|frame| frame.ack_tag != 0).unwrap().clone();

    executor.listener.steals.store(true, Ordering::SeqCst);
    let mut other = connect(&service, &executor).await;
    let ticket = executor.talk_until_stolen(&mut other).await;
    executor.listener.steals.store(false, Ordering::SeqCst);
    let mut socket = connect_with_ticket(&executor, Some(&ticket)).await.unwrap();
    assert!(receive(&mut socket).await.is_some());
    assert!(send(&mut socket, &proven.encode()).await);
    assert!(matches!(within("the end", socket.reader.next()).await, Ok(ReadEvent::Closed(_)) | Err(_)));
    assert_eq!(victim.path(), Some(ConnectionPath::Direct(executor.offered())));
    victim.talk().await;
}

#[tokio::test]
async fn whoever_has_a_ticket_and_says_nothing_is_sent_away() {
    let service = TestService::start().await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::Private).await;
    executor.listener.steals.store(true, Ordering::SeqCst);
    let mut ends = connect(&service, &executor).await;
    let ticket = executor.talk_until_stolen(&mut ends).await;
    executor.listener.steals.store(false, Ordering::SeqCst);
    let mut socket = connect_with_ticket(&executor, Some(&ticket)).await.unwrap();
    assert!(receive(&mut socket).await.is_some());
    assert_eq!(receive(&mut socket).await, None);
    ends.talk().await;
}

/// Connects to the listener of the executor at `DIRECT_PATH` with this ticket.
async fn connect_with_ticket(
    executor: &ListeningExecutor,
    ticket: Option<&str>,
) -> Result<MessageStream, ConnectError> {
    let options =
        ConnectOptions { bearer_token: ticket.map(str::to_owned), is_binary: true, ..ConnectOptions::default() };
    let url = format!("ws://{}{DIRECT_PATH}", executor.listener.address);
    within("the upgrade is answered", transport::connect(&url, options)).await
}

#[tokio::test]
async fn ends_of_the_published_protocol_never_see_a_direct_path() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let executor = ListeningExecutor::start(&service, DirectPolicy::On).await;
    let (url, token) = (service.url(), TestService::TOKEN);
    let connecting = ReferenceHarness::connect(&url, token, ENVIRONMENT);
    let mut reference = within("the harness is connected", connecting).await.unwrap();
    tokio::spawn(echo(executor.accept().await));
    for message in [&b"short"[..], &[9; 300_000]] {
        reference.send(message).await.unwrap();
        assert_eq!(within("the echo", reference.receive()).await.unwrap(), message);
    }
    assert_eq!(executor.listener.connections.load(Ordering::SeqCst), 0);

    let service = TestService::start_as(RelayKind::Reference).await;
    let serve = |stream| drop(tokio::spawn(echo(stream)));
    let _executor = ReferenceExecutor::start(&service.url(), TestService::TOKEN, ENVIRONMENT, serve).await;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    let connecting = harness(&service, DirectPolicy::On);
    let mut connection = within("the harness is connected", connecting.connect()).await.unwrap();
    assert_eq!(*connection.link.path().borrow(), Some(ConnectionPath::Relay));
    for message in [&b"short"[..], &[9; 300_000]] {
        assert!(send(&mut connection.stream, message).await);
        assert_eq!(receive(&mut connection.stream).await.unwrap(), message);
    }
    assert_eq!(service.violations(), [""; 0]);
}
