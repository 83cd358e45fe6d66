//! Which credential is chosen if there are several.

use credentials::{CredentialError, CredentialKind, KeyStore};
use testkit::json;

use crate::support::{LOCAL_SERVICE, Places, authorization};

const IDENTITY: [(&str, &str); 3] = [
    ("OPENAI_FEDERATION_RULE_ID", "rule-1"),
    ("OPENAI_IDENTITY_TOKEN_FILE", "/nonexistent"),
    ("EXEC_SERVER_WORKLOAD_TOKEN_URL", "http://127.0.0.1:9/token"),
];

/// Places that hold every kind of credential.
fn everywhere() -> Places {
    let mut places = Places::new(&IDENTITY);
    places.set("EXEC_SERVER_API_KEY", " own-key\n");
    places.set("CODEX_API_KEY", "codex-key");
    places.set("CODEX_ACCESS_TOKEN", "at-personal");
    KeyStore::locate(&[], Some(&places.path("own"))).unwrap().store(LOCAL_SERVICE, "stored-key").unwrap();
    places.write("own/auth.json", &json!({"tokens": {"access_token": "own-sign-in"}}).to_string());
    places.write("codex/auth.json", &json!({"tokens": {"access_token": "codex-sign-in"}}).to_string());
    places
}

fn remove(places: &mut Places, name: &str) {
    places.variables.retain(|(known, _)| known != name);
}

#[tokio::test]
async fn the_first_credential_that_exists_is_used() {
    let mut places = everywhere();
    let used = |places: &Places| {
        let credential = places.choose(LOCAL_SERVICE).unwrap();
        async move { authorization(&credential).await }
    };
    assert_eq!(used(&places).await, "Bearer own-key");
    // A blank variable counts as not set.
    places.set("EXEC_SERVER_API_KEY", " ");
    assert_eq!(used(&places).await, "Bearer stored-key");
    std::fs::remove_file(places.path("own/credentials.json")).unwrap();
    let description = places.choose(LOCAL_SERVICE).unwrap().description();
    assert_eq!(description.kind, CredentialKind::WorkloadIdentity);
    IDENTITY.iter().for_each(|(name, _)| remove(&mut places, name));
    assert_eq!(used(&places).await, "Bearer codex-key");
    remove(&mut places, "CODEX_API_KEY");
    assert_eq!(used(&places).await, "Bearer at-personal");
    remove(&mut places, "CODEX_ACCESS_TOKEN");
    assert_eq!(used(&places).await, "Bearer own-sign-in");
    std::fs::remove_file(places.path("own/auth.json")).unwrap();
    assert_eq!(used(&places).await, "Bearer codex-sign-in");
    places.write("codex/auth.json", &json!({"OPENAI_API_KEY": "key-in-file", "tokens": null}).to_string());
    assert_eq!(used(&places).await, "Bearer key-in-file");
    std::fs::remove_file(places.path("codex/auth.json")).unwrap();
    let expected = "there is no credential for http://127.0.0.1:9; store a key with `exec-server login \
                    http://127.0.0.1:9`, or set EXEC_SERVER_API_KEY";
    assert_eq!(places.refusal(LOCAL_SERVICE), expected);
}

#[test]
fn the_survey_lists_all_of_them_in_this_order_without_their_secrets() {
    let places = everywhere();
    let found = places.survey(Some(LOCAL_SERVICE));
    let sources: Vec<_> = found.iter().map(|found| (found.kind.as_str(), found.source.clone())).collect();
    let path = |file: &str| places.path(file).display().to_string();
    let expected = [
        ("apiKey", "EXEC_SERVER_API_KEY".to_owned()),
        ("apiKey", path("own/credentials.json")),
        ("workloadIdentity", "OPENAI_IDENTITY_TOKEN_FILE".to_owned()),
        ("apiKey", "CODEX_API_KEY".to_owned()),
        ("personalToken", "CODEX_ACCESS_TOKEN".to_owned()),
        ("signIn", path("own/auth.json")),
        ("signIn", path("codex/auth.json")),
    ];
    assert_eq!(sources, expected);
    let shown = format!("{found:?}{:?}{:?}", places.settings(), places.choose(LOCAL_SERVICE));
    for secret in ["own-key", "stored-key", "codex-key", "at-personal", "own-sign-in", "codex-sign-in"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
}

#[test]
fn a_credential_that_cannot_be_used_is_an_error_and_no_later_one_is_tried() {
    let mut places = everywhere();
    remove(&mut places, "EXEC_SERVER_API_KEY");
    // Half of a workload identity.
    remove(&mut places, "OPENAI_FEDERATION_RULE_ID");
    std::fs::remove_file(places.path("own/credentials.json")).unwrap();
    assert!(places.refusal(LOCAL_SERVICE).starts_with("OPENAI_FEDERATION_RULE_ID is not set or empty"));
    // An empty variable is half of one too.
    places.set("OPENAI_FEDERATION_RULE_ID", "");
    assert!(places.refusal(LOCAL_SERVICE).starts_with("OPENAI_FEDERATION_RULE_ID is not set or empty"));
    IDENTITY.iter().for_each(|(name, _)| remove(&mut places, name));
    for bad in ["two words", "a\r\nX-Other: b", "schlüssel"] {
        places.set("CODEX_API_KEY", bad);
        let expected = "CODEX_API_KEY holds no usable API key; it must be visible ASCII without spaces";
        assert_eq!(places.refusal(LOCAL_SERVICE), expected);
    }
}

#[test]
fn an_agent_identity_is_used_only_if_it_is_asked_for_and_then_nothing_else_is() {
    let mut places = everywhere();
    for name in ["EXEC_SERVER_API_KEY", "CODEX_API_KEY", IDENTITY[0].0, IDENTITY[1].0] {
        remove(&mut places, name);
    }
    std::fs::remove_file(places.path("own/credentials.json")).unwrap();
    places.set("CODEX_ACCESS_TOKEN", "header.claims.signature");
    let expected = CredentialError::AgentIdentityNotAsked { source_name: "CODEX_ACCESS_TOKEN".to_owned() };
    assert_eq!(places.choose(LOCAL_SERVICE).unwrap_err(), expected);

    places.use_agent_identity = true;
    places.set("EXEC_SERVER_API_KEY", "own-key");
    places.set("CODEX_API_KEY", "codex-key");
    let description = places.choose(LOCAL_SERVICE).unwrap().description();
    assert_eq!((description.kind, &*description.source), (CredentialKind::AgentIdentity, "CODEX_ACCESS_TOKEN"));
    assert_eq!(places.survey(Some(LOCAL_SERVICE)).len(), 1);
    for other in ["", " ", "at-personal"] {
        places.set("CODEX_ACCESS_TOKEN", other);
        assert!(places.refusal(LOCAL_SERVICE).starts_with("CODEX_ACCESS_TOKEN holds no agent identity"), "{other}");
    }
}
