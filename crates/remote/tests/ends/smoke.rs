//! The ordinary course: messages through the service, with our ends and with ends of the published protocol.

use std::sync::Arc;

use crate::support::{ENVIRONMENT, TestExecutor, connect, echo, exchange, harness, receive, send, within};
use testkit::TestService;
use testkit::service::{Leg, Operation, ReferenceExecutor, ReferenceHarness, RelayKind};

#[tokio::test]
async fn messages_travel_both_ways_and_the_relay_reads_none() {
    let service = TestService::start().await;
    service.capture();
    let mut executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    assert_eq!(connection.executor_key, executor.identity.public_key());
    exchange(&mut connection.stream, &mut at_executor).await;
    let captured = service.captured();
    assert!(captured.len() > 10, "{}", captured.len());
    assert!(captured.iter().all(|frame| !frame.bytes.windows(8).any(|bytes| bytes == b"question")));
    drop(connection);
    assert_eq!(receive(&mut at_executor).await, None, "the executor learns that the harness has left");
    executor.stop().await;
    assert_eq!(service.violations(), [""; 0]);
    assert_eq!([Operation::Register, Operation::Connect, Operation::Validate].map(|o| service.count(o)), [1; 3]);
}

#[tokio::test]
async fn a_stream_goes_on_after_either_socket_was_lost() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    for leg in [Leg::Harness, Leg::Executor, Leg::Harness] {
        let sockets = service.upgrades(leg);
        service.cut(leg);
        exchange(&mut connection.stream, &mut at_executor).await;
        assert_eq!(service.upgrades(leg), sockets + 1);
    }
    assert_eq!(service.count(Operation::Validate), 1, "there was one handshake");
    assert_eq!(executor.host.notes(), ["registered", "dialled", "reconnects: read_error", "dialled"]);
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn a_harness_of_the_published_protocol_uses_our_executor() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let executor = Arc::new(TestExecutor::start(&service).await);
    executor.echo();
    let url = service.url();
    let connecting = ReferenceHarness::connect(&url, TestService::TOKEN, ENVIRONMENT);
    let mut harness = within("the harness is connected", connecting).await.unwrap();
    for message in [&b"short"[..], &[9; 500_000]] {
        harness.send(message).await.unwrap();
        assert_eq!(within("the echo", harness.receive()).await.unwrap(), message);
    }
    service.cut(Leg::Executor);
    within("the reset", harness.receive()).await.unwrap_err();
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn our_harness_uses_an_executor_of_the_published_protocol() {
    let service = TestService::start_as(RelayKind::Reference).await;
    let serve = |stream| drop(tokio::spawn(echo(stream)));
    let _executor = ReferenceExecutor::start(&service.url(), TestService::TOKEN, ENVIRONMENT, serve).await;
    service.wait_for_upgrades(Leg::Executor, 1).await;
    let mut connection = within("the harness is connected", harness(&service).connect()).await.unwrap();
    for message in [&b"short"[..], &[9; 500_000]] {
        assert!(send(&mut connection.stream, message).await);
        assert_eq!(receive(&mut connection.stream).await.unwrap(), message);
    }
    service.cut(Leg::Executor);
    assert_eq!(receive(&mut connection.stream).await, None);
    assert_eq!(service.violations(), [""; 0]);
}
