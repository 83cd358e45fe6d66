//! The sign-in in `auth.json`, as running programs use it.

use std::sync::Mutex;

use testkit::service::Operation;
use testkit::{HttpPeer, TestService, http_ok, json, unsigned_token};

use crate::support::{ENVIRONMENT, User, header};

/// A time in the future, in seconds after the beginning of 1970.
const LATER: u64 = 4_000_000_000;

/// A time that is over.
const EARLIER: u64 = 1_000_000_000;

fn token(name: &str, expires: u64) -> String {
    unsigned_token(&json!({"exp": expires, "name": name}))
}

fn auth_file(access_token: &str) -> String {
    let tokens = json!({"access_token": access_token, "refresh_token": "refresh-1", "account_id": "account-1"});
    json!({"tokens": tokens}).to_string()
}

/// An endpoint that accepts the first refresh token once, and answers with this access token.
async fn endpoint(access_token: String) -> HttpPeer {
    let is_used = Mutex::new(false);
    HttpPeer::closing(move |_| {
        if std::mem::replace(&mut *is_used.lock().unwrap(), true) {
            return "HTTP/1.1 400 Bad Request\r\nContent-Length: 25\r\n\r\n{\"error\":\"invalid_grant\"}".to_owned();
        }
        http_ok(&json!({"access_token": access_token, "refresh_token": "refresh-2"}).to_string())
    })
    .await
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_several_programs_before_it_is_sent() {
    let (service, renewed) = (TestService::start().await, token("renewed", LATER));
    service.set_token(&renewed);
    let owner = User::new();
    let _executor = owner.executor(&service, &[("EXEC_SERVER_API_KEY", &renewed)]).await;
    let user = User::new();
    user.write("codex/auth.json", &auth_file(&token("old", EARLIER)));
    let (endpoint, remote) = (endpoint(renewed.clone()).await, service.url());
    let url = endpoint.url("/oauth/token");
    let variables = [("EXEC_SERVER_REFRESH_TOKEN_URL", &*url), ("EXEC_SERVER_REMOTE", &*remote)];
    let show = ["env", "show", ENVIRONMENT];
    let (first, second, third) = tokio::join!(
        user.run_with(&show, &variables),
        user.run_with(&show, &variables),
        user.run_with(&show, &variables)
    );
    for output in [first, second, third] {
        output.succeeded();
    }
    assert_eq!(endpoint.requests().len(), 1, "a refresh token is used once");
    let calls = service.calls();
    let connects: Vec<_> = calls.iter().filter(|call| call.operation == Operation::Connect).collect();
    assert_eq!(connects.len(), 3);
    for call in connects {
        assert_eq!(header(&call.head, "authorization"), Some(&*format!("Bearer {renewed}")));
        assert_eq!(header(&call.head, "chatgpt-account-id"), Some("account-1"));
    }
}

#[tokio::test]
async fn a_running_executor_reads_the_file_again_and_renews_a_refused_token_once() {
    let service = TestService::start().await;
    let first = token("first", LATER);
    service.set_token(&first);
    let user = User::new();
    user.write("codex/auth.json", &auth_file(&first));
    let renewed = token("renewed", LATER);
    let (endpoint, remote) = (endpoint(renewed.clone()).await, service.url());
    let url = endpoint.url("/oauth/token");
    let executor = user.executor(&service, &[("EXEC_SERVER_REFRESH_TOKEN_URL", &url)]).await;
    // Another program has signed in again.
    let second = token("second", LATER);
    service.set_token(&second);
    user.write("codex/auth.json", &auth_file(&second));
    let client = User::new();
    let run = async |token: &str| {
        let variables = [("EXEC_SERVER_API_KEY", token), ("EXEC_SERVER_REMOTE", &*remote)];
        client.run_with(&["run", "-e", ENVIRONMENT, "--", "echo", "done"], &variables).await.succeeded()
    };
    assert_eq!(run(&second).await, "done\n");
    assert_eq!(endpoint.requests().len(), 0);
    // The service does not accept the token any more.
    service.set_token(&renewed);
    assert_eq!(run(&renewed).await, "done\n");
    assert_eq!(endpoint.requests().len(), 1);
    let calls = service.calls();
    let tokens = calls.iter().filter(|call| call.operation == Operation::Validate);
    let tokens: Vec<_> = tokens.map(|call| header(&call.head, "authorization").unwrap()).collect();
    assert_eq!(tokens, [&second, &second, &renewed].map(|token| format!("Bearer {token}")));
    for secret in [&first, &second, &renewed, "refresh-1", "refresh-2"] {
        assert!(!executor.log().contains(secret));
    }
}
