//! The sign-in in `auth.json`: it is read again, and its tokens are renewed.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use testkit::{HttpPeer, Value, http_ok, json, unsigned_token};

use crate::support::{LOCAL_SERVICE, NOW, Places, authorization, listed};

/// An access token that expires so many seconds after [`NOW`].
fn token(name: &str, expires_in: u64) -> String {
    unsigned_token(&json!({"exp": NOW + expires_in, "name": name}))
}

fn auth_file(access_token: &str, refresh_token: &str) -> String {
    json!({
        "OPENAI_API_KEY": null, "last_refresh": "2026-01-01T00:00:00Z", "other": {"kept": true},
        "tokens": {"access_token": access_token, "refresh_token": refresh_token, "account_id": "account-1"},
    })
    .to_string()
}

/// An endpoint whose refresh tokens can be used once, as those of many issuers. It answers with `refresh-N+1` to
/// `refresh-N`, and with the access token that `access_token` makes of N+1.
async fn single_use_endpoint(access_token: impl Fn(u64) -> String + Send + Sync + 'static) -> HttpPeer {
    let used = Mutex::new(BTreeSet::new());
    HttpPeer::closing(move |request| {
        let number = request.split("refresh-").nth(1).unwrap().split('&').next().unwrap().parse::<u64>().unwrap();
        if !used.lock().unwrap().insert(number) {
            return "HTTP/1.1 400 Bad Request\r\nContent-Length: 25\r\n\r\n{\"error\":\"invalid_grant\"}".to_owned();
        }
        let refresh_token = format!("refresh-{}", number + 1);
        http_ok(&json!({"access_token": access_token(number + 1), "refresh_token": refresh_token}).to_string())
    })
    .await
}

fn places_with(file: &str, endpoint: &HttpPeer) -> Places {
    let places = Places::new(&[
        ("EXEC_SERVER_REFRESH_TOKEN_URL", &endpoint.url("/oauth/token")),
        ("EXEC_SERVER_REFRESH_CLIENT_ID", "client-1"),
    ]);
    places.write("codex/auth.json", file);
    places
}

fn stored(places: &Places) -> Value {
    std::fs::read_to_string(places.path("codex/auth.json")).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_file_is_read_for_each_request_so_another_program_can_renew_the_tokens() {
    let places = Places::new(&[]);
    places.write("codex/auth.json", &auth_file(&token("first", 3600), "refresh-1"));
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    let headers = listed(&credential.headers(LOCAL_SERVICE).await.unwrap());
    let expected = [
        ("Authorization".to_owned(), format!("Bearer {}", token("first", 3600))),
        ("ChatGPT-Account-ID".to_owned(), "account-1".to_owned()),
    ];
    assert_eq!(headers, expected);
    places.write("codex/auth.json", &auth_file(&token("second", 7200), "refresh-2"));
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("second", 7200)));
    // Another program writes the file just now.
    places.write("codex/auth.json", "{\"tokens\": {\"access_to");
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("second", 7200)));
    places.clock.set(7200);
    assert!(credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string().contains(" is damaged"));
    std::fs::remove_file(places.path("codex/auth.json")).unwrap();
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.ends_with("auth.json holds no sign-in any more; sign in again"), "{error}");
}

#[tokio::test]
async fn a_token_is_renewed_before_it_expires_and_the_file_keeps_its_other_members() {
    let endpoint = single_use_endpoint(|number| token(&format!("token-{number}"), 3600 * number)).await;
    let places = places_with(&auth_file(&token("first", 600), "refresh-1"), &endpoint);
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(places.path("codex/auth.json"), mode.clone()).unwrap();
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("first", 600)));
    assert_eq!(endpoint.connections_accepted(), 0, "nothing is renewed too early");
    places.clock.set(300);
    let requests = (0..20).map(|_| {
        let credential = Arc::clone(&credential);
        tokio::spawn(async move { authorization(&credential).await })
    });
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.unwrap(), format!("Bearer {}", token("token-2", 7200)));
    }
    let requests = endpoint.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert!(
        requests[0].starts_with("POST /oauth/token ") && !requests[0].to_ascii_lowercase().contains("authorization:")
    );
    assert!(requests[0].ends_with("grant_type=refresh_token&refresh_token=refresh-1&client_id=client-1"));
    let tokens =
        json!({"access_token": token("token-2", 7200), "refresh_token": "refresh-2", "account_id": "account-1"});
    let expected = json!({"OPENAI_API_KEY": null, "last_refresh": "2026-01-01T00:00:00Z", "other": {"kept": true},
        "tokens": tokens});
    assert_eq!(stored(&places), expected);
    assert_eq!(std::fs::metadata(places.path("codex/auth.json")).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_token_that_the_service_refuses_is_renewed_once() {
    let endpoint = single_use_endpoint(|number| token(&format!("token-{number}"), 3600)).await;
    let places = places_with(&auth_file(&token("first", 3600), "refresh-1"), &endpoint);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    let first = credential.headers(LOCAL_SERVICE).await.unwrap();
    assert!(credential.refused(&first), "another token can be had");
    let second = credential.headers(LOCAL_SERVICE).await.unwrap();
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("token-2", 3600)));
    assert_eq!(endpoint.requests().len(), 1);
    assert!(credential.refused(&first), "a late refusal of the first one says nothing about the second one");
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("token-2", 3600)));
    assert_eq!(endpoint.requests().len(), 1);
    assert!(credential.refused(&second));
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("token-3", 3600)));
}

#[tokio::test]
async fn several_programs_that_renew_at_once_use_a_refresh_token_once() {
    let endpoint = single_use_endpoint(|number| token(&format!("token-{number}"), 7200)).await;
    let places = places_with(&auth_file(&token("first", 600), "refresh-1"), &endpoint);
    // Each has opened the file on its own, as processes do.
    let credentials: Vec<_> = (0..8).map(|_| places.choose(LOCAL_SERVICE).unwrap()).collect();
    places.clock.set(600);
    let requests =
        credentials.into_iter().map(|credential| tokio::spawn(async move { authorization(&credential).await }));
    for request in requests.collect::<Vec<_>>() {
        assert_eq!(request.await.unwrap(), format!("Bearer {}", token("token-2", 7200)));
    }
    assert_eq!(endpoint.requests().len(), 1);
    assert_eq!(stored(&places)["tokens"]["refresh_token"], "refresh-2");
}

#[tokio::test]
async fn an_endpoint_that_fails_or_redirects_leaves_the_token_in_use_until_it_expires() {
    let stranger = HttpPeer::closing(|_| http_ok("{}")).await;
    let location = stranger.url("/steal");
    let endpoint = HttpPeer::closing(move |_| {
        format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    })
    .await;
    let places = places_with(&auth_file(&token("first", 600), "refresh-1"), &endpoint);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    places.clock.set(599);
    assert_eq!(authorization(&credential).await, format!("Bearer {}", token("first", 600)));
    places.clock.set(600);
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.contains("the endpoint that renews the sign-in") && !error.contains("refresh-1"), "{error}");
    assert_eq!(stranger.connections_accepted(), 0, "the refresh token goes to no other host");
}

#[tokio::test]
async fn the_refresh_token_of_codex_does_not_go_to_another_issuer() {
    // The name does not exist, so a request would fail with another error.
    let places = Places::new(&[("EXEC_SERVER_REFRESH_TOKEN_URL", "https://issuer.invalid/token")]);
    places.write("codex/auth.json", &auth_file(&token("first", 600), "refresh-1"));
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    places.clock.set(600);
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.ends_with("auth.json has expired; sign in again, for example with `codex login`"), "{error}");
}

#[tokio::test]
async fn tokens_of_another_account_are_not_used() {
    let claims = json!({"exp": NOW + 7200, "chatgpt_account_id": "account-2"});
    let endpoint = single_use_endpoint(move |_| unsigned_token(&claims)).await;
    let places = places_with(&auth_file(&token("first", 600), "refresh-1"), &endpoint);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    places.clock.set(600);
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.contains("now belongs to another account"), "{error}");
}
