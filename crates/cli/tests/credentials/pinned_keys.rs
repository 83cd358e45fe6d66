//! `env show`, and pinned keys of executors.

use testkit::service::{Leg, Operation, RegistryAnswer};
use testkit::{TestService, json};

use crate::support::{ENVIRONMENT, User};

const KEY: (&str, &str) = ("EXEC_SERVER_API_KEY", TestService::TOKEN);
const OTHER_KEY: &str = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn table(service: &TestService, pinned: Option<&str>) -> String {
    let pinned = pinned.map(|key| format!("pinned_key = \"{key}\"\n")).unwrap_or_default();
    let url = service.url();
    format!("[[environments]]\nid = \"build\"\nremote = \"{url}\"\nenvironment_id = \"{ENVIRONMENT}\"\n{pinned}")
}

#[tokio::test]
async fn the_printed_fingerprint_is_that_of_the_executor_and_the_printed_line_pins_it() {
    let (owner, user, service) = (User::new(), User::new(), TestService::start().await);
    let executor = owner.executor(&service, &[KEY]).await;
    let fingerprint = executor.fingerprint().await;
    let url = service.url();
    let remote = [KEY, ("EXEC_SERVER_REMOTE", &*url)];
    let origin = url.clone();
    let text = user.run_with(&["env", "show", ENVIRONMENT], &remote).await.succeeded();
    let expected = format!(
        "\
build-7: build-7 at {origin}
  key: {fingerprint} (not pinned)
  Compare the key with the one that the executor has printed. To accept only this key, add to environments.toml:
    [[environments]]
    id = \"build-7\"
    remote = \"{origin}\"
    environment_id = \"build-7\"
    pinned_key = \"{fingerprint}\"
"
    );
    assert_eq!(text, expected);
    // What was printed is a configuration that pins the key.
    let printed: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    user.write("codex/environments.toml", &printed.join("\n"));
    let text = user.run_with(&["env", "show", ENVIRONMENT], &[KEY]).await.succeeded();
    assert!(text.ends_with(&format!("\n  key: {fingerprint} (pinned)\n")), "{text}");
    let run = ["run", "-e", ENVIRONMENT, "--", "echo", "pinned"];
    assert_eq!(user.run_with(&run, &[KEY]).await.succeeded(), "pinned\n");
    assert_eq!(service.upgrades(Leg::Harness), 1, "`env show` does not connect to the relay");
}

#[tokio::test]
async fn the_printed_lines_have_no_user_and_password_of_the_url() {
    let (owner, user, service) = (User::new(), User::new(), TestService::start().await);
    let _executor = owner.executor(&service, &[KEY]).await;
    let url = service.url();
    for secret in ["me:secret@", "me:sec%40ret@", "secret@", ":secret@", "me:sec@ret@", "/me:secret@"] {
        let with_secret = url.replace("http://", &format!("http://{secret}"));
        let variables = [KEY, ("EXEC_SERVER_REMOTE", &*with_secret)];
        let text = user.run_with(&["env", "show", ENVIRONMENT], &variables).await.succeeded();
        assert!(text.contains(&format!("    remote = \"{url}\"\n")) && !text.contains("ret@"), "{text}");
        let json = user.run_with(&["env", "show", ENVIRONMENT, "--json"], &variables).await.succeeded();
        assert!(!json.contains("ret@"), "{json}");
    }
}

#[tokio::test]
async fn a_changed_key_of_a_pinned_environment_is_refused_before_anything_is_sent_to_it() {
    let (owner, user, service) = (User::new(), User::new(), TestService::start().await);
    let pinned = owner.executor(&service, &[KEY]).await;
    let old = pinned.fingerprint().await;
    drop(pinned);
    user.write("codex/environments.toml", &table(&service, Some(&old)));
    // The file with the key is gone, so the executor has another one.
    std::fs::remove_dir_all(owner.path("state")).unwrap();
    let executor = owner.executor(&service, &[KEY]).await;
    let new = executor.fingerprint().await;
    assert_ne!(old, new);
    service.capture();
    for args in [&["run", "-e", "build", "--", "true"][..], &["shell", "-e", "build"]] {
        let stderr = user.run_with(args, &[KEY]).await.failed(125);
        let expected = format!(
            "the key of environment `build-7` has changed: the configuration pins {old}, and the service names {new}; \
             if the executor was set up again, check the new fingerprint there and write it into environments.toml, \
             otherwise somebody may be pretending to be this environment\n"
        );
        assert!(stderr.ends_with(&expected), "{stderr}");
    }
    assert_eq!((service.upgrades(Leg::Harness), service.captured().len()), (0, 0), "nothing was sent");
    let shown = user.run_with(&["env", "show", "build"], &[KEY]).await;
    assert_eq!((shown.code, &*shown.stderr), (Some(1), ""));
    assert!(shown.stdout.contains(&format!("  key: {new}\n  pinned key: {old}\n  The key has changed")), "{shown:?}");
    let value = user.run_with(&["env", "show", "build", "--json"], &[KEY]).await.json();
    let expected = json!({"key": new, "problem": null, "isPinned": true, "isAsPinned": false});
    assert_eq!(value["executor"], expected);
}

#[tokio::test]
async fn a_registry_that_names_another_key_is_noticed_even_if_the_executor_is_the_pinned_one() {
    let (owner, user, service) = (User::new(), User::new(), TestService::start().await);
    let executor = owner.executor(&service, &[KEY]).await;
    let pinned = executor.fingerprint().await;
    user.write("codex/environments.toml", &table(&service, Some(&pinned)));
    service.alter_answers(Operation::Connect, |answer| {
        // The basepoint of the curve, which is a valid key.
        answer["executor_public_key"]["x25519_public_key"] = json!("CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
    });
    let stderr = user.run_with(&["run", "-e", "build", "--", "true"], &[KEY]).await.failed(125);
    assert!(stderr.contains("the key of environment `build-7` has changed"), "{stderr}");
    assert_eq!(service.upgrades(Leg::Harness), 0);
}

#[tokio::test]
async fn an_environment_that_is_offline_is_shown_with_what_is_known() {
    let (user, service) = (User::new(), TestService::start().await);
    user.write("codex/environments.toml", &table(&service, Some(OTHER_KEY)));
    let offline = "{\"error\":{\"code\":\"environment_offline\",\"message\":\"no executor\"}}".to_owned();
    service.answer_next(Operation::Connect, 1, RegistryAnswer::Status(409, offline));
    let shown = user.run_with(&["env", "show", "build"], &[KEY]).await;
    assert_eq!((shown.code, &*shown.stderr), (Some(1), ""));
    let expected = format!(
        "build: build-7 at {}\n  pinned key: {OTHER_KEY}\n  the key is not known: the environment is offline: no executor\n",
        service.url()
    );
    assert_eq!(shown.stdout, expected);
    assert_eq!(service.count(Operation::Connect), 1, "the service is asked once");
    let stderr = user.run_with(&["env", "show", "unknown"], &[KEY]).await.failed(1);
    assert!(
        stderr.starts_with("exec-server: there is no environment `unknown`; there are: build, local"),
        "{stderr}"
    );
}

#[tokio::test]
async fn environments_of_other_kinds_are_shown_without_secrets() {
    let user = User::new();
    user.write(
        "codex/environments.toml",
        r#"
        [[environments]]
        id = "url"
        url = "wss://me:secret@host.example:1/x?secret"
        token_file = "/t"
        [[environments]]
        id = "program"
        program = "docker"
        args = ["--token=secret"]
        env = { TOKEN = "secret" }
        [[environments]]
        id = "ssh"
        ssh = "me@host"
        "#,
    );
    for (name, expected) in [
        ("local", "local: this machine\n  a server is started for each command\n"),
        ("program", "program: program docker\n  working directory: that of the command\n"),
        ("ssh", "ssh: ssh me@host\n  server program: exec-server\n"),
    ] {
        assert_eq!(user.run(&["env", "show", name]).await.succeeded(), expected);
    }
    let url = user.run(&["env", "show", "url"]).await.succeeded();
    assert!(url.ends_with("\n  certificates: those that the system trusts\n  token: /t\n"), "{url}");
    for name in ["url", "program"] {
        for args in [&["env", "show", name][..], &["env", "show", name, "--json"]] {
            let text = user.run(args).await.succeeded();
            assert!(!text.contains("secret"), "{text}");
        }
    }
}
