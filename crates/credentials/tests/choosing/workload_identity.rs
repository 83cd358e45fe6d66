//! The identity of a workload: a token of the platform is exchanged for one of the service.

use testkit::{HttpPeer, http_ok, json, unsigned_token};

use crate::support::{LOCAL_SERVICE, Places, authorization, listed};

/// An endpoint that gives a token for so many seconds. The token names its assertion and this account.
async fn endpoint(account: impl Fn(usize) -> String + Send + Sync + 'static, expires_in: u64) -> HttpPeer {
    let count = std::sync::atomic::AtomicUsize::new(0);
    HttpPeer::closing(move |request| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let claims = json!({"number": number, "chatgpt_account_id": account(number), "for": assertion(request)});
        let answer =
            json!({"access_token": unsigned_token(&claims), "token_type": "Bearer", "expires_in": expires_in});
        http_ok(&answer.to_string())
    })
    .await
}

fn assertion(request: &str) -> String {
    request.split("assertion=").nth(1).unwrap().split('&').next().unwrap().to_owned()
}

fn places(endpoint: &HttpPeer) -> Places {
    let mut places = Places::new(&[
        ("OPENAI_FEDERATION_RULE_ID", "rule-1"),
        ("OPENAI_WORKLOAD_IDENTITY_CONTEXT", "ctx"),
        ("EXEC_SERVER_WORKLOAD_TOKEN_URL", &endpoint.url("/oauth/token")),
    ]);
    let file = places.path("identity");
    places.set("OPENAI_IDENTITY_TOKEN_FILE", file.to_str().unwrap());
    places.write("identity", "platform-1\n");
    places
}

#[tokio::test]
async fn the_token_of_the_platform_is_exchanged_and_read_again_before_the_new_token_expires() {
    let endpoint = endpoint(|_| "account-1".to_owned(), 100).await;
    let places = places(&endpoint);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    assert_eq!(endpoint.connections_accepted(), 0, "nothing is asked before it is needed");
    let first = listed(&credential.headers(LOCAL_SERVICE).await.unwrap());
    assert_eq!(first[1], ("ChatGPT-Account-ID".to_owned(), "account-1".to_owned()));
    let form = "\r\n\r\ngrant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=platform-1\
                &federation_rule_id=rule-1&workload_identity_context=ctx";
    assert!(endpoint.requests()[0].ends_with(form), "{}", endpoint.requests()[0]);
    places.write("identity", "platform-2");
    places.clock.set(49);
    assert_eq!(authorization(&credential).await, first[0].1, "renewed too early");
    // After half of the life.
    places.clock.set(50);
    assert_ne!(authorization(&credential).await, first[0].1);
    assert_eq!(assertion(&endpoint.requests()[1]), "platform-2");
    assert_eq!(endpoint.requests().len(), 2);
    // A service that refuses the token gets another one, once.
    let headers = credential.headers(LOCAL_SERVICE).await.unwrap();
    assert!(credential.refused(&headers));
    authorization(&credential).await;
    assert_eq!(endpoint.requests().len(), 3);
}

#[tokio::test]
async fn a_token_of_another_account_or_with_an_impossible_life_is_not_used() {
    let changing = endpoint(|number| format!("account-{number}"), 100).await;
    let places_of_changing = places(&changing);
    let credential = places_of_changing.choose(LOCAL_SERVICE).unwrap();
    authorization(&credential).await;
    places_of_changing.clock.set(60);
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.starts_with("the workload identity now belongs to another account"), "{error}");
    for life in [0, 3601] {
        let endpoint = endpoint(|_| "account-1".to_owned(), life).await;
        let places = places(&endpoint);
        let error = places.choose(LOCAL_SERVICE).unwrap().headers(LOCAL_SERVICE).await.unwrap_err().to_string();
        assert!(error.contains(&format!("has issued a token for {life} s; 1 s to 3600 s are accepted")), "{error}");
    }
}

#[tokio::test]
async fn a_file_that_is_missing_empty_or_too_large_is_not_sent() {
    let endpoint = endpoint(|_| "account-1".to_owned(), 100).await;
    let places = places(&endpoint);
    let credential = places.choose(LOCAL_SERVICE).unwrap();
    for (content, problem) in
        [(" \n".to_owned(), "holds no token"), ("x".repeat(16_385), "is larger than 16384 bytes")]
    {
        places.write("identity", &content);
        let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    std::fs::remove_file(places.path("identity")).unwrap();
    let error = credential.headers(LOCAL_SERVICE).await.unwrap_err().to_string();
    assert!(error.contains("does not exist; OPENAI_IDENTITY_TOKEN_FILE names it"), "{error}");
    assert_eq!(endpoint.connections_accepted(), 0);
}
