//! How a command is told which environment to use, and what it says if there is none.

use std::fs;

use testkit::service::{Leg, Operation, RegistryAnswer};
use testkit::{TestServer, TestService, Value};
use tokio::process::Command;

use crate::support::{CommandEnd, ENVIRONMENT, RemoteFixture, finish};

/// A command that knows no service.
fn unconfigured(remote: &RemoteFixture, verb: &str) -> Command {
    let mut command = remote.command_without_target(verb);
    command.env_remove("EXEC_SERVER_REMOTE").env_remove("EXEC_SERVER_API_KEY");
    command
}

/// The fingerprint that the executor has printed.
fn fingerprint(remote: &RemoteFixture) -> String {
    let log = remote.executor.log();
    log.split("key ").nth(1).unwrap_or_else(|| panic!("no key: {log}")).trim().to_owned()
}

/// `environments.toml` with an entry for the environment of the executor, under the name `build`.
fn write_configuration(remote: &RemoteFixture, further: &str) {
    let url = remote.service.url();
    let entry = format!(
        "default = \"build\"\n[[environments]]\nid = \"build\"\nremote = \"{url}\"\nenvironment_id = \"{ENVIRONMENT}\"\n"
    );
    fs::write(remote.path("environments.toml"), entry + further).unwrap();
    fs::write(remote.path("token"), format!("{}\n", TestService::TOKEN)).unwrap();
}

#[tokio::test]
async fn an_entry_of_environments_toml_names_service_environment_and_token() {
    let remote = RemoteFixture::start().await;
    write_configuration(&remote, &format!("token_file = \"token\"\npinned_key = \"{}\"\n", fingerprint(&remote)));
    let configured = |verb: &str| {
        let mut command = unconfigured(&remote, verb);
        command.env("EXEC_SERVER_HOME", remote.folder());
        command
    };
    let expected = CommandEnd::printed("hi\n", 0);
    assert_eq!(finish(configured("run").args(["--", "echo", "hi"])).await, expected);
    assert_eq!(finish(configured("run").args(["-e", "build", "--", "echo", "hi"])).await, expected);
    let listed = finish(configured("env").arg("--check")).await;
    assert!(listed.code == Some(0) && listed.stdout.contains("build (default)"), "{listed:?}");
    let listed = finish(configured("env").args(["--check", "--json"])).await;
    let listed: Value = listed.stdout.parse().unwrap();
    let build = &listed["environments"][0];
    assert_eq!((&build["kind"], &build["environmentId"]), (&"remote".into(), &ENVIRONMENT.into()), "{listed}");
    assert_eq!(build["check"]["isReachable"], true, "{listed}");
}

#[tokio::test]
async fn the_variables_of_the_published_client_choose_an_environment() {
    let remote = RemoteFixture::start().await;
    // A file that names another default does not count.
    fs::write(remote.path("environments.toml"), "default = \"none\"\n").unwrap();
    let mut command = unconfigured(&remote, "run");
    command.env("CODEX_EXEC_SERVER_NOISE_REGISTRY_URL", remote.service.url());
    command.env("CODEX_EXEC_SERVER_NOISE_ENVIRONMENT_ID", ENVIRONMENT);
    command.env("CODEX_HOME", remote.folder()).args(["--", "echo", "hi"]);
    let incomplete = finish(&mut command).await;
    assert_eq!(incomplete.code, Some(125));
    assert!(incomplete.stderr.contains("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN"), "{incomplete:?}");
    command.env("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN", TestService::TOKEN);
    assert_eq!(finish(&mut command).await, CommandEnd::printed("hi\n", 0));
    command.env("CODEX_EXEC_SERVER_NOISE_CHATGPT_ACCOUNT_ID", "account-1");
    assert_eq!(finish(&mut command).await, CommandEnd::printed("hi\n", 0));
    let last_call = remote.service.calls().into_iter().rev().find(|call| call.operation == Operation::Connect);
    assert!(last_call.unwrap().head.to_lowercase().contains("account-1"), "the account is named");
}

#[tokio::test]
async fn a_command_asks_nothing_before_it_is_used_and_says_what_is_in_the_way() {
    let mut remote = RemoteFixture::start().await;
    assert_eq!(finish(remote.command_without_target("env").args(["-e", ENVIRONMENT])).await.code, Some(0));
    assert_eq!(remote.service.upgrades(Leg::Harness), 0, "`env` without --check connects to nothing");

    let mut command = remote.command(&["run", "--", "true"]);
    let refused = finish(command.env("EXEC_SERVER_API_KEY", "another")).await;
    let text = "exec-server: failed to connect to exec-server: the service refused the credential (HTTP 401): the token is \
                missing or wrong; `exec-server whoami` says which one is used\n";
    assert_eq!((refused.stderr.as_str(), refused.code), (text, Some(125)));

    let mut command = remote.command(&["run", "--", "true"]);
    let keyless = finish(command.env_remove("EXEC_SERVER_API_KEY")).await;
    let url = remote.service.url();
    let url = url.trim_end_matches("/prefix");
    let text = format!(
        "exec-server: there is no credential for {url}; store a key with `exec-server login {url}`, or set EXEC_SERVER_API_KEY\n"
    );
    assert_eq!((keyless.stderr, keyless.code), (text, Some(125)));

    let not_found = r#"{"error": {"code": "environment_not_found", "message": "there is no such environment"}}"#;
    let answer = RegistryAnswer::Status(404, not_found.to_owned());
    remote.service.answer_next(Operation::Connect, 1, answer);
    let unknown = remote.run(&["run", "--", "true"]).await;
    assert!(unknown.code == Some(125) && unknown.stderr.contains("there is no such environment"), "{unknown:?}");

    write_configuration(&remote, "pinned_key = \"SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"\n");
    let mut command = remote.command_without_target("run");
    let pinned = finish(command.env("EXEC_SERVER_HOME", remote.folder()).args(["-e", "build", "--", "true"])).await;
    assert_eq!(pinned.code, Some(125));
    assert!(pinned.stderr.contains("the key of environment `build-7` has changed"), "{pinned:?}");
    assert_eq!(remote.handshakes(), 0, "nothing was sent to the executor");
    remote.executor.signal(testkit::Signal::TERM);
    assert_eq!(remote.executor.wait().await, Some(0));
}

#[tokio::test]
async fn the_variable_with_the_service_of_a_client_makes_no_server_an_executor() {
    let service = TestService::start().await;
    let args = ["--listen", "ws://127.0.0.1:0"];
    let server = TestServer::start_with(&args, |command| {
        command.env("EXEC_SERVER_REMOTE", service.url()).env("EXEC_SERVER_ENVIRONMENT_ID", ENVIRONMENT)
    })
    .await;
    server.client().await;
    assert_eq!(service.count(Operation::Register), 0);
}

#[tokio::test]
async fn an_id_that_would_change_the_path_of_a_call_is_refused() {
    let remote = RemoteFixture::start().await;
    for id in [".", ".."] {
        let end = finish(remote.command_without_target("run").args(["-e", id, "--", "true"])).await;
        assert_eq!(end.code, Some(125), "{end:?}");
        assert!(end.stderr.contains("the environment id must not be blank, `.` or `..`"), "{end:?}");
    }
    assert_eq!(remote.service.count(Operation::Connect), 0);
}

#[tokio::test]
async fn a_command_without_a_home_directory_uses_new_keys() {
    let remote = RemoteFixture::start().await;
    let mut command = remote.command(&["run"]);
    command.env_remove("XDG_STATE_HOME").env_remove("HOME").args(["--", "echo", "hi"]);
    assert_eq!(finish(&mut command).await, CommandEnd::printed("hi\n", 0));
}

#[tokio::test]
async fn a_check_that_ends_while_the_environment_is_offline_says_so() {
    let remote = RemoteFixture::start().await;
    let mut command = remote.command_without_target("env");
    let end = finish(command.args(["-e", "nobody", "--check", "--timeout", "1s"])).await;
    assert!(end.stdout.contains("no executor is connected") && !end.stdout.contains("no answer"), "{end:?}");
}
