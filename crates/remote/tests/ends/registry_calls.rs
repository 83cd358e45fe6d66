//! The HTTP requests to a registry: paths, headers, bodies and timeouts.

use std::time::Duration;

use fetch::{Fetcher, FetcherConfig};
use relay::RelayIdentity;
use remote::{Registry, RegistryError};
use serde_json::json;
use testkit::TestService;
use testkit::service::{Operation, RegistryAnswer};

use crate::support::{ENVIRONMENT, TestExecutor, registry, within};

/// A timeout for requests that is long enough for a service that answers at once.
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn the_calls_have_the_paths_headers_and_bodies_of_the_published_protocol() {
    let service = TestService::start().await;
    let executor = TestExecutor::start(&service).await;
    let (executor_key, key) = (executor.identity.public_key(), RelayIdentity::generate().unwrap().public_key());
    let registry = registry(&service);
    let bundle = registry.connect(&key, Duration::from_secs(10)).await.unwrap();
    let (registration, grant) = (&bundle.executor_registration_id, &bundle.harness_key_authorization);
    assert!(registry.validate(registration, &key, grant).await.unwrap());
    assert!(!registry.validate(registration, &key, grant).await.unwrap(), "an authorization is good once");
    assert_eq!(bundle.executor_public_key, executor_key);
    let calls = service.calls();
    for (call, operation) in calls.iter().zip(["register", "connect", "validate"]) {
        let first_line = call.head.lines().next().unwrap();
        assert_eq!(first_line, format!("POST /prefix/cloud/environment/{ENVIRONMENT}/{operation} HTTP/1.1"));
        let header = |name: &str| {
            let mut lines = call.head.lines().filter_map(|line| line.split_once(": "));
            lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        assert_eq!(header("authorization"), Some(format!("Bearer {}", TestService::TOKEN)));
        assert_eq!(header("content-type").as_deref(), Some("application/json"));
        assert_eq!(header("cookie"), None);
    }
    assert_eq!(
        calls[0].body,
        json!({
            "security_profile": "noise_hybrid_ik_v1",
            "executor_public_key": executor_key,
            "name": "executor of a test",
        })
    );
    assert_eq!(calls[1].body, json!({"harness_public_key": key}));
    assert_eq!(
        calls[2].body,
        json!({
            "executor_registration_id": registration,
            "harness_public_key": key,
            "harness_key_authorization": grant,
        })
    );
}

#[tokio::test]
async fn a_timeout_covers_headers_and_body() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    let key = RelayIdentity::generate().unwrap().public_key();
    for answer in [RegistryAnswer::Hang, RegistryAnswer::HangInBody] {
        service.answer_next(Operation::Connect, 1, answer.clone());
        let failure = within("the timeout", registry(&service).connect(&key, SHORT)).await.err().unwrap();
        assert!(failure.is_retryable(), "{answer:?}: {failure}");
    }
}

#[tokio::test]
async fn an_id_cannot_leave_its_place_in_the_path() {
    let service = TestService::start().await;
    let token = credentials::bearer(TestService::TOKEN.to_owned(), None).unwrap();
    let fetcher = Fetcher::new(FetcherConfig::default()).unwrap();
    let key = RelayIdentity::generate().unwrap().public_key();
    for id in ["a/../../admin", "x?y=z#f", "späße %2f"] {
        let registry = Registry::new(&service.url(), id, token.clone(), fetcher.clone()).unwrap();
        registry.register(&key, None).await.unwrap();
        let call = service.calls().pop().unwrap();
        assert_eq!((call.operation, call.environment.as_str()), (Operation::Register, id));
    }
    for (url, id) in [("ftp://x", "e"), ("https://", "e"), ("", "e"), ("https://x", " "), ("https://x", "a\nb")] {
        assert!(Registry::new(url, id, token.clone(), fetcher.clone()).is_err(), "{url} {id:?}");
    }
}

#[tokio::test]
async fn no_text_about_a_registry_has_its_secrets() {
    let service = TestService::start().await;
    let _executor = TestExecutor::start(&service).await;
    let url = service.url().replace("http://", "http://user-secret:password-secret@") + "/path-secret?query-secret";
    let token = credentials::bearer("token-secret".to_owned(), None).unwrap();
    let registry = Registry::new(&url, ENVIRONMENT, token, Fetcher::new(FetcherConfig::default()).unwrap()).unwrap();
    let key = RelayIdentity::generate().unwrap().public_key();
    let failure = registry.connect(&key, Duration::from_secs(10)).await.err().unwrap();
    let honest = crate::support::registry(&service);
    let bundle = honest.connect(&key, Duration::from_secs(10)).await.unwrap();
    let registration = honest.register(&key, None).await.unwrap();
    for text in [
        format!("{failure} {failure:?}"),
        format!("{registry:?} {}", registry.service()),
        format!("{bundle:?} {registration:?}"),
    ] {
        assert!(!text.contains("-secret") && !text.contains("secret="), "{text}");
        assert!(!text.contains(&bundle.harness_key_authorization), "{text}");
    }
    assert!(matches!(failure, RegistryError::Refused { status: 404, .. }), "{failure}");
}
