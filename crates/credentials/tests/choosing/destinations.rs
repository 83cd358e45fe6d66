//! A credential goes to the service for which it was chosen, and to no host that it is not for.

use credentials::{KeyStore, bearer};
use testkit::json;

use crate::support::{LOCAL_SERVICE, Places};

const ELSEWHERE: &str = "https://service.example";

#[tokio::test]
async fn a_credential_goes_to_its_own_service_only_and_never_without_encryption_to_another_machine() {
    let places = Places::new(&[("EXEC_SERVER_API_KEY", "own-key")]);
    let credential = places.choose("https://service.example/base").unwrap();
    assert!(credential.headers("https://service.example/base/cloud?x").await.is_ok());
    for other in ["https://service.example:8443", "https://example", "http://service.example", LOCAL_SERVICE] {
        let error = credential.headers(other).await.unwrap_err().to_string();
        assert!(error.starts_with("the API key from EXEC_SERVER_API_KEY is not sent to "), "{error}");
    }
    for plain in ["http://service.example", "http://10.0.0.1", "http://[::ffff:127.0.0.1]", "ws://localhost", "x"] {
        assert!(places.choose(plain).is_err(), "{plain}");
    }
    let given = bearer("given".to_owned(), Some("account-1".to_owned())).unwrap();
    assert!(given.headers("http://service.example").await.is_err());
    assert_eq!(given.headers(ELSEWHERE).await.unwrap().iter().count(), 2);
}

#[test]
fn what_openai_has_issued_goes_to_openai_and_this_machine_only() {
    let key = ["https://api.openai.com/v1", "https://openai.org", LOCAL_SERVICE];
    let token = ["https://api.openai.com/v1", "https://chatgpt.com/backend-api", LOCAL_SERVICE];
    let refused = [ELSEWHERE, "https://openai.com.example", "http://api.openai.com"];
    let file = |content: testkit::Value| {
        let places = Places::new(&[]);
        places.write("codex/auth.json", &content.to_string());
        places
    };
    let sign_in = || json!({"tokens": {"access_token": "secret-1"}});
    let mut agent = Places::new(&[("CODEX_ACCESS_TOKEN", "a.b.c")]);
    agent.use_agent_identity = true;
    let own_file = Places::new(&[]);
    own_file.write("own/auth.json", &sign_in().to_string());
    for (places, permitted) in [
        (Places::new(&[("CODEX_API_KEY", "secret-1")]), key),
        (file(json!({"OPENAI_API_KEY": "secret-1"})), key),
        (Places::new(&[("CODEX_ACCESS_TOKEN", "at-secret-1")]), token),
        (file(sign_in()), token),
        (own_file, token),
        (agent, token),
    ] {
        for service in permitted {
            assert!(places.choose(service).is_ok(), "{service}");
        }
        for service in refused {
            let error = places.refusal(service);
            assert!(
                error.contains(&format!(" is not sent to {service}: ")) && !error.contains("secret-1"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_refusal_says_what_to_do() {
    let places = Places::new(&[("CODEX_API_KEY", "secret-1")]);
    let expected = "the API key from CODEX_API_KEY is not sent to https://service.example: it goes only to openai.com, \
                    openai.org and this machine; store a key of this service with `exec-server login \
                    https://service.example`";
    assert_eq!(places.refusal(ELSEWHERE), expected);
    KeyStore::locate(&[], Some(&places.path("own"))).unwrap().store(ELSEWHERE, "stored").unwrap();
    assert_eq!(places.choose(ELSEWHERE).unwrap().description().destination, ELSEWHERE);
}

#[test]
fn tokens_of_an_issuer_that_the_user_has_named_go_to_any_service_but_those_of_codex_do_not() {
    let content = json!({"tokens": {"access_token": "secret-1"}}).to_string();
    let places = Places::new(&[("EXEC_SERVER_REFRESH_TOKEN_URL", "https://issuer.example/token")]);
    places.write("codex/auth.json", &content);
    assert!(places.choose(ELSEWHERE).is_err());
    places.write("own/auth.json", &content);
    assert!(places.choose(ELSEWHERE).is_ok());
    let places = Places::new(&[("EXEC_SERVER_REFRESH_TOKEN_URL", "https://auth.openai.com/token")]);
    places.write("own/auth.json", &content);
    assert!(places.choose(ELSEWHERE).is_err());
    assert!(places.choose("https://chatgpt.com").is_ok());
}
