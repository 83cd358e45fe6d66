//! Executors that are registered again, two executors with one id, URLs that expire, and ends that leave while they
//! wait for a registry or a relay.

use std::sync::Arc;
use std::time::Duration;

use relay::RelayIdentity;
use remote::{
    DirectListeners, DirectPolicy, Executor, ExecutorHost, ExecutorSettings, Harness, HarnessError, HarnessSettings,
};
use testkit::service::{Leg, Operation, RegistryAnswer};
use testkit::{CuttingProxy, TestService};
use tokio_util::sync::CancellationToken;
use transport::{MessageLimits, TlsRoots};

use crate::raw_harness::RawHarness;
use crate::support::{
    TestExecutor, TestHost, connect, connect_and_exchange, exchange, harness, receive, registry, within,
};
use relay::FrameBody;

#[tokio::test]
async fn an_expired_url_is_renewed_and_the_streams_go_on() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    for leg in [Leg::Executor, Leg::Harness] {
        service.expire_urls(leg);
        service.cut(leg);
        exchange(&mut connection.stream, &mut at_executor).await;
    }
    assert_eq!([Operation::Register, Operation::Connect, Operation::Validate].map(|o| service.count(o)), [2, 2, 1]);
    let notes = executor.host.notes();
    assert!(notes.contains(&"reconnects: registration_rejected".to_owned()), "{notes:?}");
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn what_a_url_says_about_time_means_nothing_to_the_ends() {
    let service = TestService::start().await;
    for (operation, times) in
        [(Operation::Register, "&expires=1"), (Operation::Connect, "&not_before=99999999999&expires=1970-01-01")]
    {
        service.alter_answers(operation, move |answer| {
            let url = answer["url"].as_str().unwrap();
            answer["url"] = format!("{url}{times}").into();
            answer["expires_at"] = "1970-01-01T00:00:00Z".into();
        });
    }
    let executor = TestExecutor::start(&service).await;
    connect_and_exchange(&service, &executor).await;
}

#[tokio::test]
async fn a_harness_with_an_expired_url_gets_another_one() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.refuse_upgrades(Leg::Harness, 1, 401);
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Connect), 2);
}

#[tokio::test]
async fn the_streams_of_an_old_registration_end_when_the_executor_has_another_one() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    // Another executor takes the id and leaves, so this executor has to be registered again.
    let other = RelayIdentity::generate().unwrap();
    registry(&service).register(&other.public_key(), None).await.unwrap();
    service.cut(Leg::Executor);
    assert_eq!(receive(&mut at_executor).await, None, "the executor does not keep the stream");
    assert_eq!(receive(&mut connection.stream).await, None, "the harness learns that the stream is over");
    connect_and_exchange(&service, &executor).await;
}

#[tokio::test]
async fn two_executors_with_one_id_displace_each_other_slowly_and_harnesses_are_served() {
    let service = TestService::start().await;
    let first = Arc::new(TestExecutor::start(&service).await);
    let second = Arc::new(TestExecutor::start(&service).await);
    first.echo();
    second.echo();
    let mut connection = within("a harness is served", async {
        loop {
            match harness(&service).connect().await {
                Ok(connection) => break connection,
                Err(failure) => assert!(failure.is_retryable(), "{failure}"),
            }
        }
    })
    .await;
    assert!([&first, &second].iter().any(|executor| connection.executor_key == executor.identity.public_key()));
    assert!(crate::support::send(&mut connection.stream, b"x").await);
    // The other executor may take the id at any time, so the stream either echoes or ends.
    let echo = receive(&mut connection.stream).await;
    assert!(echo.is_none_or(|echo| echo == b"x"[..]));
    // The executors take the id from each other quickly at first. Then the waits grow up to 30 s.
    assert!(service.count(Operation::Register) < 30, "{}", service.count(Operation::Register));
    // A harness that knows the key of its executor never talks to the other one.
    let pinned = Harness::new(HarnessSettings {
        registry: registry(&service),
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        pinned_fingerprint: Some(first.identity.public_key().fingerprint()),
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct: DirectPolicy::default(),
    });
    match within("a result", pinned.connect()).await {
        Ok(connection) => assert_eq!(connection.executor_key, first.identity.public_key()),
        Err(HarnessError::KeyChanged { found, .. }) => assert_eq!(found, second.identity.public_key().fingerprint()),
        Err(other) => assert!(other.is_retryable(), "{other}"),
    }
}

#[tokio::test]
async fn an_executor_that_is_told_to_leave_does_not_wait_for_a_registry() {
    let service = TestService::start().await;
    service.answer_next(Operation::Register, 1, RegistryAnswer::Hang);
    let closing = CancellationToken::new();
    let settings = ExecutorSettings {
        registry: registry(&service),
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        name: None,
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct: DirectListeners::default(),
    };
    let (host, _streams) = TestHost::new();
    let host: Arc<dyn ExecutorHost> = Arc::new(host);
    let registering = tokio::spawn(Executor::register(settings, host, closing.clone()));
    testkit::eventually("the registry was asked", || (service.count(Operation::Register) == 1).then_some(())).await;
    closing.cancel();
    let left = tokio::time::timeout(Duration::from_secs(5), registering).await;
    assert!(left.expect("it waits for the registry").unwrap().unwrap().is_none());
}

#[tokio::test]
async fn an_executor_that_leaves_refuses_the_harness_that_waits_for_the_registry() {
    let service = TestService::start().await;
    let mut executor = TestExecutor::start(&service).await;
    service.answer_next(Operation::Validate, 1, RegistryAnswer::Hang);
    let mut raw = RawHarness::dial(&service).await;
    raw.name_stream("s").await;
    let (_, message) = raw.first_message("s");
    raw.send_body("s", FrameBody::Handshake(message)).await;
    testkit::eventually("the registry was asked", || (service.count(Operation::Validate) == 1).then_some(())).await;
    let left = tokio::time::timeout(Duration::from_secs(5), executor.stop()).await;
    left.expect("it waits for the registry");
    raw.expect_reset("s").await;
}

#[tokio::test]
async fn an_executor_that_leaves_does_not_wait_for_a_relay() {
    let service = TestService::start().await;
    let proxy = CuttingProxy::start(service.address()).await;
    proxy.freeze();
    service.route_through(Leg::Executor, proxy.url().strip_prefix("ws://").unwrap());
    let mut executor = TestExecutor::start_with(registry(&service)).await;
    let left = tokio::time::timeout(Duration::from_secs(5), executor.stop()).await;
    left.expect("it waits for the relay");
}
