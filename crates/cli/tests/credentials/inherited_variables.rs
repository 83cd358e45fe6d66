//! Processes inherit no credential from the server that starts them.

use testkit::{Client, TestServer, TestService, json};

use crate::support::{ENVIRONMENT, User};

const CREDENTIALS: [(&str, &str); 3] = [
    ("EXEC_SERVER_API_KEY", TestService::TOKEN),
    ("CODEX_API_KEY", "secret-key-of-codex"),
    ("CODEX_ACCESS_TOKEN", "at-secret"),
];

#[tokio::test]
async fn a_client_gets_no_credential_of_the_server_whatever_it_asks_for() {
    let server = TestServer::start_with(&[], |command| command.envs(CREDENTIALS).env("HARMLESS", "yes")).await;
    let mut client = server.client().await;
    let policy =
        json!({"inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": []});
    for (process, argv) in [("direct", &["/usr/bin/env"][..]), ("shell", &["/bin/sh", "-c", "env"])] {
        let mut params = Client::start_params(process, argv);
        params["env"] = json!({"CODEX_API_KEY": "of-the-client"});
        params["envPolicy"] = policy.clone();
        client.call("process/start", params).await;
        let text = String::from_utf8(client.outcome(process).await.stdout).unwrap();
        assert!(text.contains("HARMLESS=yes\n") && text.contains("CODEX_API_KEY=of-the-client\n"), "{text}");
        assert!(CREDENTIALS.iter().all(|(_, secret)| !text.contains(secret)), "{text}");
    }
}

#[tokio::test]
async fn a_command_behind_a_relay_gets_none_of_the_executor_and_none_of_the_client() {
    let (owner, user, service) = (User::new(), User::new(), TestService::start().await);
    let _executor = owner.executor(&service, &CREDENTIALS).await;
    let remote = service.url();
    let variables = [CREDENTIALS[0], ("EXEC_SERVER_REMOTE", &*remote)];
    let text = user.run_with(&["run", "-e", ENVIRONMENT, "--", "env"], &variables).await.succeeded();
    assert!(text.contains("PATH=") && CREDENTIALS.iter().all(|(name, _)| !text.contains(name)), "{text}");
}

#[tokio::test]
async fn a_command_on_this_machine_has_the_variables_of_its_user() {
    let user = User::new();
    let text = user.run_with(&["run", "--", "env"], &CREDENTIALS).await.succeeded();
    for (name, value) in CREDENTIALS {
        assert!(text.contains(&format!("{name}={value}\n")), "{name}");
    }
}
