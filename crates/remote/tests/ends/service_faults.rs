//! Services that refuse, give false answers, answer garbage or do not answer. The ends either retry, or fail with an
//! error that says what to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use relay::RelayIdentity;
use remote::{DirectListeners, Executor, ExecutorHost, ExecutorSettings, HarnessError, RegistryError};
use serde_json::Value;
use testkit::TestService;
use testkit::service::{Leg, Operation, RegistryAnswer};
use tokio_util::sync::CancellationToken;
use transport::{MessageLimits, TlsRoots};

use crate::support::{
    TestExecutor, TestHost, connect, connect_and_exchange, exchange, harness, registry, registry_at, run_together,
    within,
};

/// The error with which a harness gives up.
async fn failure_of_harness(service: &TestService) -> HarnessError {
    within("the harness gives up", harness(service).connect()).await.err().unwrap()
}

/// Registers an executor. Returns the result, and how often the registry was called.
async fn register(service: &TestService) -> (Result<(), RegistryError>, usize) {
    let settings = ExecutorSettings {
        registry: registry(service),
        identity: Arc::new(RelayIdentity::generate().unwrap()),
        name: None,
        tls_roots: TlsRoots::default(),
        limits: MessageLimits::default(),
        direct: DirectListeners::default(),
    };
    let (host, _streams) = TestHost::new();
    let host: Arc<dyn ExecutorHost> = Arc::new(host);
    let before = service.count(Operation::Register);
    let registered = Executor::register(settings, host, CancellationToken::new());
    let result = within("the executor is registered or gives up", registered).await;
    (result.map(|executor| assert!(executor.is_some())), service.count(Operation::Register) - before)
}

/// Answers after which the same call is tried again.
fn passing_answers() -> Vec<RegistryAnswer> {
    let status = |status, body: &str| RegistryAnswer::Status(status, body.to_owned());
    vec![
        status(500, ""),
        status(503, "<html>"),
        status(429, ""),
        status(408, ""),
        RegistryAnswer::TooManyRequests(0),
        RegistryAnswer::Garbage,
        RegistryAnswer::Close,
        RegistryAnswer::CutInBody,
    ]
}

/// Answers after which the same call is not tried again, with a part of the error text.
fn final_answers() -> Vec<(RegistryAnswer, &'static str)> {
    let status = |status: u16, body: &str| RegistryAnswer::Status(status, body.to_owned());
    vec![
        (status(401, "{\"error\":{\"message\":\"who are you\"}}"), "refused the credential (HTTP 401): who are you"),
        (status(403, ""), "refused the credential (HTTP 403): the answer has no text"),
        (status(404, "no such environment"), "HTTP 404: no such environment"),
        (status(400, "{\"error\":{}}"), "HTTP 400"),
        (status(409, "{\"error\":{\"code\":\"registration_conflict\"}}"), "HTTP 409 (registration_conflict)"),
        (status(302, ""), "HTTP 302"),
        (RegistryAnswer::Redirect("http://127.0.0.1:1/elsewhere".to_owned()), "HTTP 302"),
        (status(200, "not JSON"), "is the URL that of an exec-server service?"),
        (status(200, "{}"), "is the URL that of an exec-server service?"),
        (status(200, ""), "is the URL that of an exec-server service?"),
        (status(404, "one\ntwo\u{1b}[2J\u{7}three"), "HTTP 404: one two [2J three"),
    ]
}

#[tokio::test]
async fn an_executor_registers_again_after_a_failure_that_may_pass() {
    let service = TestService::start().await;
    // Each attempt has to wait before it retries, so the attempts run at the same time.
    let attempts = passing_answers().into_iter().map(|answer| async move {
        let service = TestService::start().await;
        service.answer_next(Operation::Register, 1, answer.clone());
        let (result, calls) = register(&service).await;
        assert!(result.is_ok() && calls == 2, "{answer:?}: {result:?}");
    });
    run_together(attempts).await;
    drop(service);
}

#[tokio::test]
async fn an_executor_gives_up_at_its_start_when_the_service_refuses_it() {
    let service = TestService::start().await;
    for (answer, text) in final_answers() {
        service.answer_next(Operation::Register, 1, answer.clone());
        let (result, calls) = register(&service).await;
        let failure = result.unwrap_err();
        assert!(failure.to_string().contains(text) && calls == 1, "{answer:?}: {failure}");
    }
}

#[tokio::test]
async fn a_harness_asks_again_after_a_failure_that_may_pass() {
    let attempts = passing_answers().into_iter().map(|answer| async move {
        let service = TestService::start().await;
        let executor = TestExecutor::start(&service).await;
        service.answer_next(Operation::Connect, 1, answer.clone());
        let (mut connection, mut at_executor) = connect(&service, &executor).await;
        exchange(&mut connection.stream, &mut at_executor).await;
        assert_eq!(service.count(Operation::Connect), 2, "{answer:?}");
    });
    run_together(attempts).await;
}

#[tokio::test]
async fn a_harness_gives_up_when_the_service_refuses_it() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    for (number, (answer, text)) in final_answers().into_iter().enumerate() {
        service.answer_next(Operation::Connect, 1, answer.clone());
        let failure = failure_of_harness(&service).await;
        assert!(failure.to_string().contains(text) && !failure.is_retryable(), "{answer:?}: {failure}");
        assert_eq!(service.count(Operation::Connect), number + 1);
    }
}

#[tokio::test]
async fn a_harness_waits_as_long_as_the_service_asks_but_not_for_minutes() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.answer_next(Operation::Connect, 1, RegistryAnswer::TooManyRequests(1));
    let began = Instant::now();
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    exchange(&mut connection.stream, &mut at_executor).await;
    service.answer_next(Operation::Connect, 1, RegistryAnswer::TooManyRequests(60));
    let failure = failure_of_harness(&service).await;
    assert!(failure.to_string().ends_with("; try again in 60 s") && failure.is_retryable(), "{failure}");
    assert_eq!(service.count(Operation::Connect), 3);
}

#[tokio::test]
async fn an_environment_without_an_executor_is_offline_and_is_found_when_it_comes() {
    let service = TestService::start().await;
    let connecting = harness(&service);
    let connecting = tokio::spawn(async move { connecting.connect().await });
    testkit::eventually("the harness has asked twice", || (service.count(Operation::Connect) >= 2).then_some(()))
        .await;
    let executor = TestExecutor::start(&service).await;
    let mut connection = within("the harness is connected", connecting).await.unwrap().unwrap();
    let (mut at_executor, _) = executor.accept().await;
    exchange(&mut connection.stream, &mut at_executor).await;
}

/// Replaces `member` of a good answer with `lie`, and returns the error of the harness.
async fn failure_after_lie(service: &TestService, member: &'static str, lie: Value) -> HarnessError {
    service.alter_answers(Operation::Connect, move |bundle| bundle[member] = lie.clone());
    failure_of_harness(service).await
}

#[tokio::test]
async fn lies_of_a_registry_are_errors_that_tell_no_secret() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    for (member, lie, text) in [
        ("environment_id", "env-2", "answered for another environment"),
        ("security_profile", "plaintext_v0", "noise_hybrid_ik_v1"),
        ("executor_registration_id", " ", "blank `executor_registration_id`"),
        ("harness_key_authorization", "", "blank `harness_key_authorization`"),
        ("url", " ", "blank `url`"),
        ("url", "http://127.0.0.1:1/path-secret?sig=query-secret", "neither with wss:// nor with ws://"),
        ("url", "unix:///run/path-secret.sock", "neither with wss:// nor with ws://"),
        ("url", "no url path-secret", "neither with wss:// nor with ws://"),
        ("url", "ws://user-secret@/path-secret", "cannot connect"),
        ("url", "ws://127.0.0.1:99999/path-secret?sig=query-secret", "cannot connect"),
    ] {
        let failure = failure_after_lie(&service, member, lie.into()).await;
        let (shown, debugged) = (failure.to_string(), format!("{failure:?}"));
        assert!(shown.contains(text), "{member} {lie}: {shown}");
        assert!(!failure.is_retryable(), "{shown}");
        assert!(!shown.contains("-secret") && !debugged.contains("-secret"), "{shown} {debugged}");
    }
    for (member, lie) in [("url", Value::Null), ("executor_public_key", Value::from("key")), ("url", Value::from(7))]
    {
        let failure = failure_after_lie(&service, member, lie).await;
        assert!(matches!(failure, HarnessError::Registry(RegistryError::Malformed { .. })), "{failure}");
    }
}

#[tokio::test]
async fn a_relay_that_cannot_be_reached_is_tried_again_and_its_url_stays_secret() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    // Nothing listens on this port, because its listener is already dropped.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut attempts = 0;
    service.alter_answers(Operation::Connect, move |bundle| {
        attempts += 1;
        if attempts < 4 {
            bundle["url"] = format!("ws://{closed}/path-secret?sig=query-secret").into();
        }
    });
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Connect), 4);
}

#[tokio::test]
async fn an_executor_tells_nobody_the_url_of_its_relay() {
    let service = TestService::start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut attempts = 0;
    service.alter_answers(Operation::Register, move |registration| {
        attempts += 1;
        let url = match attempts {
            1 => "http://127.0.0.1:1/path-secret".to_owned(),
            2 => "ws://user-secret@/path-secret".to_owned(),
            3 => format!("ws://{closed}/path-secret?sig=query-secret"),
            _ => return,
        };
        registration["url"] = url.into();
    });
    // The executor registers again after a URL that can never work, and after a relay that cannot be reached for long.
    let executor = TestExecutor::start(&service).await;
    assert_eq!(service.count(Operation::Register), 4);
    let notes = executor.host.notes();
    assert!(notes.len() > 40 && !notes.iter().any(|note| note.contains("-secret")), "{notes:?}");
    connect_and_exchange(&service, &executor).await;
}

#[tokio::test]
async fn a_harness_tries_again_when_the_relay_refuses_for_now() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.refuse_upgrades(Leg::Harness, 1, 503);
    service.refuse_upgrades(Leg::Harness, 1, 500);
    service.put_off_upgrade(Leg::Harness, 1);
    let began = Instant::now();
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    exchange(&mut connection.stream, &mut at_executor).await;
    // After the same refusals, an existing stream is resumed and not replaced.
    service.refuse_upgrades(Leg::Harness, 1, 502);
    service.refuse_upgrades(Leg::Harness, 2, 403);
    service.put_off_upgrade(Leg::Harness, 1);
    service.cut(Leg::Harness);
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Validate), 1);
}

#[tokio::test]
async fn a_harness_gives_up_when_the_relay_refuses_for_good() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    for status in [302, 400, 403, 404] {
        service.refuse_upgrades(Leg::Harness, 1, status);
        let failure = failure_of_harness(&service).await;
        let text = format!("the relay refused the connection with HTTP status {status}");
        assert!(failure.to_string() == text && !failure.is_retryable(), "{failure}");
    }
    // A first status 401 means that the URL has expired, so the harness asks for another URL. A second one is an error.
    service.refuse_upgrades(Leg::Harness, 2, 401);
    let failure = failure_of_harness(&service).await;
    assert!(failure.to_string().ends_with("HTTP status 401"), "{failure}");
    assert_eq!(service.count(Operation::Connect), 4 + 2);
}

#[tokio::test]
async fn an_executor_whose_relay_has_too_much_to_do_waits_and_is_not_registered_again() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    service.put_off_upgrade(Leg::Executor, 1);
    service.refuse_upgrades(Leg::Executor, 1, 503);
    let began = Instant::now();
    service.cut(Leg::Executor);
    service.wait_for_upgrades(Leg::Executor, 2).await;
    assert!(began.elapsed() >= Duration::from_secs(1));
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Register), 1);
}

#[tokio::test]
async fn an_executor_outlives_a_registry_that_fails_while_it_needs_a_new_url() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    // The executor also survives answers that would make it give up at its start.
    service.answer_next(Operation::Register, 1, RegistryAnswer::Status(401, String::new()));
    service.answer_next(Operation::Register, 1, RegistryAnswer::Garbage);
    service.expire_urls(Leg::Executor);
    service.cut(Leg::Executor);
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Register), 4);
}

#[tokio::test]
async fn a_service_that_is_not_there_is_an_error_that_names_it() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let registry = registry_at(&format!("http://{closed}/path-secret"));
    let key = RelayIdentity::generate().unwrap().public_key();
    let failure = registry.connect(&key, Duration::from_secs(10)).await.err().unwrap();
    let text = failure.to_string();
    assert!(text.starts_with("cannot reach the service") && text.contains(&closed.to_string()), "{text}");
    assert!(failure.is_retryable() && !text.contains("-secret"), "{text}");
}
