//! The identity of an agent: the token is verified, a task is registered once, and each request is signed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_lc_rs::rand;
use crypto_box::aead::rand_core::{self, CryptoRng, RngCore};
use curve25519_dalek::edwards::CompressedEdwardsY;
use testkit::{HttpPeer, TestAgent, Value, agent_assertion, base64, http_ok, json};

use crate::support::{LOCAL_SERVICE, NOW, Places, authorization, listed};

fn places(token: &str, issuers: &HttpPeer) -> Places {
    let mut places = Places::new(&[
        ("CODEX_ACCESS_TOKEN", token),
        ("CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL", &issuers.url("/")),
        ("CODEX_AGENT_IDENTITY_JWKS_BASE_URL", &issuers.url("")),
    ]);
    places.use_agent_identity = true;
    places
}

async fn failure(places: &Places) -> String {
    places.choose(LOCAL_SERVICE).unwrap().headers(LOCAL_SERVICE).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_task_is_registered_once_and_each_request_is_signed() {
    let agent = Arc::new(TestAgent::generate());
    let issuers = agent.start_issuers(|| json!({"task_id": "task-7"}).to_string()).await;
    let token = agent.token(&agent.claims(NOW + 100));
    let places = places(&token, &issuers);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    assert_eq!(issuers.connections_accepted(), 0, "nothing is asked before it is needed");
    let headers = listed(&credential.headers(LOCAL_SERVICE).await.unwrap());
    let others = [("ChatGPT-Account-ID", TestAgent::ACCOUNT), ("X-OpenAI-Fedramp", "true")];
    assert_eq!(headers[1..], others.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let first = agent_assertion(&headers[0].1);
    let signature = first["signature"].as_str().unwrap();
    let expected = json!({"agent_runtime_id": "agent-rt-1", "signature": signature, "task_id": "task-7",
        "timestamp": "2026-08-22T05:54:43Z"});
    assert_eq!(first, expected);
    assert!(agent.has_signed("agent-rt-1:task-7:2026-08-22T05:54:43Z", signature));

    places.clock.set(1);
    let second = agent_assertion(&authorization(&credential).await);
    assert!(agent.has_signed("agent-rt-1:task-7:2026-08-22T05:54:44Z", second["signature"].as_str().unwrap()));
    let requests = issuers.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    let body: Value = requests[1].split("\r\n\r\n").nth(1).unwrap().parse().unwrap();
    assert_eq!(body["timestamp"], "2026-08-22T05:54:43Z");
    assert!(agent.has_signed("agent-rt-1:2026-08-22T05:54:43Z", body["signature"].as_str().unwrap()));
    for text in [format!("{credential:?}"), requests.concat()] {
        assert!(!text.contains(&token) && !text.contains(agent.private_key()), "the token stays here: {text}");
    }

    // The service has forgotten the task.
    let headers = credential.headers(LOCAL_SERVICE).await.unwrap();
    assert!(credential.refused(&headers));
    authorization(&credential).await;
    assert_eq!(issuers.requests().len(), 3, "another task is registered, and the keys are not asked for again");
}

/// The randomness of the system, as crypto_box wants it.
struct SystemRandomness;

impl CryptoRng for SystemRandomness {}

impl RngCore for SystemRandomness {
    fn next_u32(&mut self) -> u32 {
        rand_core::impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        rand_core::impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        rand::fill(bytes).unwrap();
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

#[tokio::test]
async fn a_task_id_in_a_sealed_box_is_opened() {
    let agent = Arc::new(TestAgent::generate());
    let point = CompressedEdwardsY::from_slice(agent.public_key()).unwrap().decompress().unwrap().to_montgomery();
    let sealed = crypto_box::PublicKey::from_bytes(point.to_bytes()).seal(&mut SystemRandomness, b"task-8").unwrap();
    let sealed = base64(&sealed);
    let issuers = agent.start_issuers(move || json!({"encryptedTaskId": sealed}).to_string()).await;
    let places = places(&agent.token(&agent.claims(NOW + 100)), &issuers);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    assert_eq!(agent_assertion(&authorization(&credential).await)["task_id"], "task-8");
}

#[tokio::test]
async fn a_registration_is_tried_again_if_the_service_is_overloaded() {
    let agent = Arc::new(TestAgent::generate());
    let keys = agent.start_issuers(String::new).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let tasks = HttpPeer::closing(move |_| match counted.fetch_add(1, Ordering::SeqCst) {
        0 => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned(),
        1 => "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => http_ok(&json!({"taskId": "task-9"}).to_string()),
    })
    .await;
    let mut places = places(&agent.token(&agent.claims(NOW + 100)), &keys);
    places.set("CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL", &tasks.url("/"));
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    assert_eq!(agent_assertion(&authorization(&credential).await)["task_id"], "task-9");
    assert_eq!(tries.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn an_identity_that_is_expired_or_for_another_purpose_or_of_a_stranger_is_not_used() {
    let agent = Arc::new(TestAgent::generate());
    let issuers = agent.start_issuers(|| json!({"task_id": "task-7"}).to_string()).await;
    let changed = |member: &str, value: Value| {
        let mut claims = agent.claims(NOW + 100);
        claims[member] = value;
        agent.token(&claims)
    };
    let stranger = TestAgent::generate();
    for (token, problem) in [
        (agent.token(&agent.claims(NOW)), "has expired; set the variable to a new one"),
        (changed("aud", json!("other")), "is a token of another issuer or for another purpose"),
        (changed("iss", json!("https://example.org")), "is a token of another issuer or for another purpose"),
        (changed("agent_runtime_id", json!("..")), "names no valid agent"),
        (changed("agent_runtime_id", json!("a\r\nb")), "names no valid agent"),
        (changed("account_id", json!("a b")), "names no valid account"),
        (changed("agent_private_key", json!("AAAA")), "holds no usable key"),
        (changed("exp", json!(null)), "lacks claims"),
        (stranger.token(&stranger.claims(NOW + 100)), "has a wrong signature"),
        ("a.b.c".to_owned(), "is no signed JSON Web Token"),
    ] {
        let error = failure(&places(&token, &issuers)).await;
        assert!(error.contains(problem) && !error.contains(&token), "{error}");
    }
    assert!(issuers.requests().iter().all(|request| request.starts_with("GET ")), "no task is registered");
    let mut several = agent.claims(NOW + 100);
    several["aud"] = json!(["other", "codex-app-server"]);
    let places = places(&agent.token(&several), &issuers);
    assert!(places.choose(LOCAL_SERVICE).unwrap().headers(LOCAL_SERVICE).await.is_ok());
}

#[test]
fn the_issuers_are_asked_over_https_or_on_this_machine_only() {
    for variable in ["CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL", "CODEX_AGENT_IDENTITY_JWKS_BASE_URL"] {
        let mut places = Places::new(&[("CODEX_ACCESS_TOKEN", "a.b.c"), (variable, "http://example.org")]);
        places.use_agent_identity = true;
        assert!(places.refusal(LOCAL_SERVICE).starts_with(&format!("{variable} is a plain http:// address")));
    }
}
