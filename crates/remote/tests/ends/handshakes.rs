//! Handshakes with the wrong key, the wrong stream, the wrong suite or the wrong authorization, and handshakes whose
//! messages the relay alters, repeats or replaces.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use relay::{Frame, FrameBody, RelayIdentity};
use remote::{HarnessError, RegistryError};
use serde_json::{Value, json};
use testkit::TestService;
use testkit::service::{Direction, Operation, RegistryAnswer};

use crate::raw_harness::RawHarness;
use crate::support::{
    TestExecutor, connect, connect_and_exchange, exchange, harness, receive, registry, send, within,
};

/// Tries to connect while the registry gives bundles that `change` has altered. Returns the failure, and how often the
/// executor has asked the registry about a harness.
async fn connect_with(change: impl FnMut(&mut Value) + Send + 'static) -> (HarnessError, usize) {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.alter_answers(Operation::Connect, change);
    let failure = within("the harness gives up", harness(&service).connect()).await.err().unwrap();
    let asked = service.count(Operation::Validate);
    // A harness with an unaltered bundle is still served.
    service.alter_answers(Operation::Connect, |_| {});
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
    assert!(!executor.host.notes().iter().any(|note| note.starts_with("reconnects")), "the socket was kept");
    (failure, asked)
}

#[tokio::test]
async fn a_registry_that_names_another_key_of_the_executor_makes_the_handshake_fail() {
    let other = serde_json::to_value(RelayIdentity::generate().unwrap().public_key()).unwrap();
    let (failure, asked) = connect_with(move |bundle| bundle["executor_public_key"] = other.clone()).await;
    assert!(matches!(failure, HarnessError::Reset) && failure.is_retryable(), "{failure}");
    assert_eq!(asked, 0, "the executor cannot read who the harness is");
}

#[tokio::test]
async fn a_registry_that_names_another_registration_makes_the_handshake_fail() {
    let (failure, asked) = connect_with(|bundle| bundle["executor_registration_id"] = "registration-99".into()).await;
    assert!(matches!(failure, HarnessError::Reset), "{failure}");
    assert_eq!(asked, 0);
}

#[tokio::test]
async fn a_key_of_another_suite_is_refused_before_anything_is_sent() {
    let (failure, asked) = connect_with(|bundle| {
        bundle["executor_public_key"]["suite"] = "Noise_hybridIK_X25519+MLKEM768_ChaChaPoly_SHA256".into();
    })
    .await;
    assert!(matches!(failure, HarnessError::Registry(RegistryError::Malformed { .. })), "{failure}");
    assert!(!failure.is_retryable());
    assert_eq!(asked, 0);
}

#[tokio::test]
async fn an_authorization_that_is_too_long_is_refused_before_anything_is_sent() {
    let (failure, asked) = connect_with(|bundle| bundle["harness_key_authorization"] = "x".repeat(4097).into()).await;
    assert!(failure.to_string().contains("4096"), "{failure}");
    assert_eq!(asked, 0);
}

#[tokio::test]
async fn an_authorization_that_the_registry_does_not_know_is_refused() {
    let (failure, asked) = connect_with(|bundle| bundle["harness_key_authorization"] = "forged".into()).await;
    assert!(matches!(failure, HarnessError::Reset), "{failure}");
    assert_eq!(asked, 3, "the harness has tried three times");
}

#[tokio::test]
async fn a_harness_that_is_refused_again_and_again_costs_itself_only() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    let identity = Arc::new(RelayIdentity::generate().unwrap());
    service.answer_next(Operation::Validate, 8, RegistryAnswer::Json(json!({"valid": false})));
    for attempt in 0..12 {
        let mut raw = RawHarness::dial_as(&registry(&service), Arc::clone(&identity)).await;
        let stream_id = format!("attempt {attempt}");
        raw.name_stream(&stream_id).await;
        let (_, message) = raw.first_message(&stream_id);
        raw.send_body(&stream_id, FrameBody::Handshake(message)).await;
        raw.expect_reset(&stream_id).await;
    }
    assert_eq!(service.count(Operation::Validate), 1 + 8, "the registry is not asked again about this harness");
    assert!(executor.host.notes().contains(&"refused: refused too often".to_owned()));
    exchange(&mut connection.stream, &mut at_executor).await;
    let (mut other, mut at_executor) = connect(&service, &executor).await;
    exchange(&mut other.stream, &mut at_executor).await;
}

#[tokio::test]
async fn only_a_boolean_true_admits_a_harness() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    for answer in [json!({"valid": "true"}), json!({"valid": 1}), json!({}), json!([true]), json!(null)] {
        service.answer_next(Operation::Validate, 1, RegistryAnswer::Json(answer));
        let mut raw = RawHarness::dial(&service).await;
        raw.name_stream("s").await;
        let (_, message) = raw.first_message("s");
        raw.send_body("s", FrameBody::Handshake(message)).await;
        raw.expect_reset("s").await;
    }
    let notes = executor.host.notes();
    assert!(notes[2..].iter().all(|note| note == "refused: the registry gave no answer"), "{notes:?}");
}

#[tokio::test]
async fn a_registry_that_cannot_answer_for_a_moment_is_asked_again() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    for answer in [
        RegistryAnswer::Status(500, "a secret of the service".to_owned()),
        RegistryAnswer::TooManyRequests(0),
        RegistryAnswer::Close,
    ] {
        service.answer_next(Operation::Validate, 1, answer);
    }
    let (mut connection, mut at_executor) = connect(&service, &executor).await;
    exchange(&mut connection.stream, &mut at_executor).await;
    assert_eq!(service.count(Operation::Validate), 4);
    assert_eq!(executor.host.notes(), ["registered", "dialled"]);
}

#[tokio::test]
async fn a_harness_about_which_the_registry_does_not_answer_delays_no_other() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    service.answer_next(Operation::Validate, 1, RegistryAnswer::Hang);
    let mut raw = RawHarness::dial(&service).await;
    raw.name_stream("s").await;
    let (_, message) = raw.first_message("s");
    raw.send_body("s", FrameBody::Handshake(message)).await;
    testkit::eventually("the registry was asked", || (service.count(Operation::Validate) == 1).then_some(())).await;
    connect_and_exchange(&service, &executor).await;
}

#[tokio::test]
async fn a_record_or_another_message_during_a_handshake_ends_it() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    service.answer_next(Operation::Validate, 2, RegistryAnswer::Hang);
    for (stream_id, disturbance) in [
        ("record", FrameBody::Data { seq: 0, record: vec![7; 100].into() }),
        ("other message", FrameBody::Handshake(vec![7; 3600].into())),
    ] {
        let mut raw = RawHarness::dial(&service).await;
        raw.name_stream(stream_id).await;
        let (_, message) = raw.first_message(stream_id);
        // A copy of the handshake message is ignored.
        for body in [FrameBody::Handshake(message.clone()), FrameBody::Handshake(message), disturbance] {
            raw.send_body(stream_id, body).await;
        }
        raw.expect_reset(stream_id).await;
    }
}

/// Connects while the relay applies `disturb` to the first handshake message in this direction. Returns how many
/// bundles the harness has asked for.
async fn connect_disturbed(
    direction: Direction,
    disturb: impl Fn(&Bytes) -> Vec<Bytes> + Send + 'static,
) -> Result<usize, HarnessError> {
    let service = TestService::start().await;
    let executor = Arc::new(TestExecutor::start(&service).await);
    executor.echo();
    let disturbed = AtomicUsize::new(0);
    service.filter_frames(move |to, message| {
        let is_handshake =
            matches!(Frame::decode(message.clone()).unwrap().body, FrameBody::Handshake(_)) && to == direction;
        if is_handshake && disturbed.fetch_add(1, Ordering::Relaxed) == 0 {
            return disturb(message);
        }
        vec![message.clone()]
    });
    let mut connection = within("the harness has a result", harness(&service).connect()).await?;
    assert!(send(&mut connection.stream, b"question").await);
    assert_eq!(receive(&mut connection.stream).await.unwrap(), b"question"[..]);
    Ok(service.count(Operation::Connect))
}

fn altered(message: &Bytes) -> Bytes {
    let mut bytes = message.to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    bytes.into()
}

#[tokio::test]
async fn a_first_message_that_was_altered_is_followed_by_another_handshake() {
    let bundles = connect_disturbed(Direction::ToExecutor, |message| vec![altered(message)]).await.unwrap();
    assert_eq!(bundles, 2);
}

#[tokio::test]
async fn an_answer_that_was_altered_is_an_error_that_says_so() {
    let failure = connect_disturbed(Direction::ToHarness, |message| vec![altered(message)]).await.unwrap_err();
    assert!(matches!(failure, HarnessError::Handshake(_)) && !failure.is_retryable(), "{failure}");
    assert!(failure.to_string().contains("altered"), "{failure}");
}

#[tokio::test]
async fn a_handshake_message_that_comes_twice_or_after_garbage_is_enough() {
    for direction in [Direction::ToExecutor, Direction::ToHarness] {
        let twice = connect_disturbed(direction, |message| vec![message.clone(), message.clone()]).await;
        assert_eq!(twice.unwrap(), 1, "{direction:?}");
        let garbage = connect_disturbed(direction, |message| {
            let cut = message.slice(..message.len() / 2);
            vec![Bytes::from_static(b"garbage"), cut, message.clone()]
        });
        assert_eq!(garbage.await.unwrap(), 1, "{direction:?}");
    }
}

#[tokio::test]
async fn a_reset_during_the_handshake_is_followed_by_another_one() {
    let reset = |message: &Bytes| {
        let stream_id = Frame::decode(message.clone()).unwrap().stream_id;
        vec![Frame::new(stream_id, FrameBody::Reset { reason: "any".to_owned() }).encode().into()]
    };
    assert_eq!(connect_disturbed(Direction::ToHarness, reset).await.unwrap(), 2);
}
