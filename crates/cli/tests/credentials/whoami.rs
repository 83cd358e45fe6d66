//! `whoami`: which credential would be used where, and why.

use testkit::json;

use crate::support::User;

const SERVICE: &str = "https://service.example";
const SECRETS: [&str; 5] = ["own-key", "stored-key", "codex-key", "at-personal", "sign-in-token"];

fn assert_no_secrets(text: &str) {
    SECRETS.iter().for_each(|secret| assert!(!text.contains(secret), "{secret} in {text}"));
}

async fn user_with_everything() -> User {
    let user = User::new();
    user.run_with_stdin(&["login", SERVICE], b"stored-key").await.succeeded();
    let sign_in = json!({"tokens": {"access_token": "sign-in-token", "account_id": "account-1"}});
    user.write("codex/auth.json", &sign_in.to_string());
    user
}

#[tokio::test]
async fn the_used_credential_and_the_others_are_named_with_the_reason() {
    let user = user_with_everything().await;
    let (store, sign_in) = (user.store(), user.path("codex/auth.json"));
    let (store, sign_in) = (store.display(), sign_in.display());
    let variables =
        [("EXEC_SERVER_API_KEY", "own-key"), ("CODEX_API_KEY", "codex-key"), ("CODEX_ACCESS_TOKEN", "at-personal")];
    let text = user.run_with(&["whoami", "https://SERVICE.example/base"], &variables).await.succeeded();
    let openai = "is not sent to https://service.example: it goes only to openai.com, openai.org";
    let advice = "store a key of this service with `exec-server login https://service.example`";
    let before = "not used, because EXEC_SERVER_API_KEY comes before it";
    let expected = format!(
        "\
https://service.example gets the API key from EXEC_SERVER_API_KEY.
Found, in the order in which credentials are looked for:
  API key from EXEC_SERVER_API_KEY: used
  API key from {store}: {before}
  API key from CODEX_API_KEY: {before}; otherwise: the API key from CODEX_API_KEY {openai} and this machine; {advice}
  personal access token from CODEX_ACCESS_TOKEN: {before}; otherwise: the personal access token from CODEX_ACCESS_TOKEN {openai}, chatgpt.com and this machine; {advice}
  stored sign-in from {sign_in}: {before}; otherwise: the sign-in in {sign_in} {openai}, chatgpt.com and this machine; {advice}
"
    );
    assert_eq!(text, expected);
    assert_no_secrets(&text);

    let output = user.run_with(&["whoami", "https://api.openai.com", "--json"], &variables[1..]).await;
    let value = output.json();
    assert_eq!(output.code, Some(0));
    let used = json!({"kind": "apiKey", "source": "CODEX_API_KEY", "account": null});
    assert_eq!(value["services"], json!([{"service": "https://api.openai.com", "used": used, "problem": null}]));
    let sources: Vec<_> = value["found"].as_array().unwrap().iter().map(|found| found["kind"].clone()).collect();
    assert_eq!(sources, ["apiKey", "personalToken", "signIn"]);
    assert_eq!(value["found"][2]["account"], "account-1");
    assert_no_secrets(&output.stdout);
}

#[tokio::test]
async fn without_a_url_all_known_services_are_answered() {
    let user = user_with_everything().await;
    user.write(
        "codex/environments.toml",
        r#"
        service = "https://second.example/base"
        [[environments]]
        id = "own-token"
        remote = "https://third.example"
        environment_id = "e"
        token_file = "token"
        "#,
    );
    let (store, sign_in) = (user.store(), user.path("codex/auth.json"));
    let (store, sign_in) = (store.display(), sign_in.display());
    let token = user.path("codex/token");
    let token = token.display();
    let text = user.run(&["whoami"]).await.succeeded();
    let expected = format!(
        "\
https://second.example gets nothing: the first credential that was found, in {sign_in}, cannot be used.
https://service.example gets the API key from {store}.
For the environment own-token, https://third.example gets the token in {token} instead.
Found, in the order in which credentials are looked for:
  API key from {store}: goes to https://service.example
  stored sign-in from {sign_in}, account account-1: goes to openai.com, openai.org, chatgpt.com and this machine
"
    );
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_credential_that_cannot_be_used_is_a_failure_and_so_is_none() {
    let user = User::new();
    let none = user.run(&["whoami", SERVICE]).await;
    assert_eq!((none.code, &*none.stderr), (Some(1), ""));
    let expected = "https://service.example gets nothing. Store a key with `exec-server login https://service.example`, or set EXEC_SERVER_API_KEY.\n";
    assert_eq!(none.stdout, expected);
    let text = "There is no credential. Store a key with `exec-server login URL`, or set EXEC_SERVER_API_KEY.\n";
    let none = user.run(&["whoami"]).await;
    assert_eq!((none.code, &*none.stdout), (Some(1), text));

    let agent = [("CODEX_ACCESS_TOKEN", "head.claims.signature")];
    let refused = user.run_with(&["whoami", "https://chatgpt.com"], &agent).await;
    assert_eq!(refused.code, Some(1));
    let reason = "CODEX_ACCESS_TOKEN holds an agent identity, which is used only with --use-agent-identity-auth";
    assert!(
        refused.stdout.contains(&format!("agent identity from CODEX_ACCESS_TOKEN: cannot be used: {reason}")),
        "{refused:?}"
    );
    let workload = [("OPENAI_IDENTITY_TOKEN_FILE", "/nonexistent")];
    let text = user.run_with(&["whoami", SERVICE], &workload).await.stdout;
    let expected = "https://service.example gets nothing: the first credential that was found, in OPENAI_IDENTITY_TOKEN_FILE, cannot be used.\n";
    assert!(text.starts_with(expected), "{text}");
    for flag in ["--use-agent-identity-auth", "--allow-agent-identity-auth"] {
        let text = user.run_with(&["whoami", flag, "https://chatgpt.com"], &agent).await.succeeded();
        assert!(text.starts_with("https://chatgpt.com gets the agent identity from CODEX_ACCESS_TOKEN.\n"), "{text}");
    }
    let stderr = user.run(&["whoami", "ftp://x"]).await.failed(1);
    assert!(stderr.starts_with("exec-server: the address of the service must begin with https://"), "{stderr}");
}

#[tokio::test]
async fn the_directory_of_the_variable_is_used_and_escape_sequences_are_shown() {
    let user = User::new();
    let home = user.path("own\u{1b}[31m");
    let variables = [("EXEC_SERVER_HOME", home.to_str().unwrap())];
    let mut login = user.command(&["login", SERVICE]);
    login.envs(variables).stdin(std::process::Stdio::from(std::fs::File::open(key_file(&user)).unwrap()));
    let text = crate::support::finish(&mut login).await.succeeded();
    assert!(text.contains("/own\\u{1b}[31m/credentials.json"), "{text:?}");
    let text = user.run_with(&["whoami", SERVICE], &variables).await.succeeded();
    assert!(text.contains("/own\\u{1b}[31m/credentials.json: used"), "{text:?}");
    assert!(home.join("credentials.json").exists() && !user.store().exists());
}

fn key_file(user: &User) -> std::path::PathBuf {
    user.write("key", "stored-key\n");
    user.path("key")
}
