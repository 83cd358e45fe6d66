//! The flags of `forward`, and the end of a forwarder.

use testkit::service::{Leg, Operation, ReferenceHarness, RegistryAnswer};
use testkit::{TestServer, TestService, run_to_end};

use crate::support::{ENVIRONMENT, Forwarder, program, text_and_code, within};

#[tokio::test]
async fn the_service_the_environment_and_the_destination_are_required() {
    let all = [["--connect", "ws://127.0.0.1:1"], ["--remote", "http://127.0.0.1:1"], ["--environment-id", "e"]];
    for left_out in 0..all.len() {
        let mut args = vec!["forward"];
        args.extend(all.iter().enumerate().filter(|(at, _)| *at != left_out).flat_map(|(_, flag)| flag));
        let (_, stderr, code) = text_and_code(&run_to_end(&args).await);
        assert_eq!(code, Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(all[left_out][0]), "{args:?}: {stderr}");
    }
}

#[tokio::test]
async fn a_destination_that_is_no_server_url_is_refused_before_anything_is_sent() {
    let service = TestService::start().await;
    for url in ["http://127.0.0.1:1", "ws://", "127.0.0.1:1", "stdio"] {
        let home = tempfile::tempdir().unwrap();
        let mut command = program(home.path());
        command.args(["forward", "--connect", url, "--remote", &service.url(), "--environment-id", ENVIRONMENT]);
        let output = within("the forwarder refuses", command.output()).await.unwrap();
        let (_, stderr, code) = text_and_code(&output);
        assert_eq!(code, Some(125), "{stderr}");
        assert!(stderr.contains("cannot connect to `"), "{stderr}");
    }
    assert_eq!(service.count(Operation::Register), 0);
}

#[tokio::test]
async fn older_names_of_flags_work_and_the_name_is_shown_to_the_service() {
    let server = TestServer::start().await;
    for is_forwarder in [true, false] {
        let (service, home) = (TestService::start().await, tempfile::tempdir().unwrap());
        let mut command = program(home.path());
        if is_forwarder {
            command.args(["forward", "--connect", server.url()]);
        }
        command.args(["--remote", &service.url(), "--executor-id", ENVIRONMENT, "--name", "the machine of a test"]);
        let mut child = command.spawn().unwrap();
        service.wait_for_upgrades(Leg::Executor, 1).await;
        let calls = service.calls();
        assert_eq!(
            (calls[0].environment.as_str(), &calls[0].body["name"]),
            (ENVIRONMENT, &"the machine of a test".into())
        );
        child.kill().await.unwrap();
    }
}

#[tokio::test]
async fn the_older_flag_for_an_agent_identity_ignores_the_key_and_needs_an_identity() {
    let service = TestService::start().await;
    for flag in ["--use-agent-identity-auth", "--allow-agent-identity-auth"] {
        let home = tempfile::tempdir().unwrap();
        let mut command = program(home.path());
        command
            .args(["--remote", &service.url(), "--executor-id", ENVIRONMENT, flag])
            .env_remove("CODEX_ACCESS_TOKEN");
        let output = within("the executor ends", command.output()).await.unwrap();
        let (_, stderr, code) = text_and_code(&output);
        assert!(code == Some(125) && stderr.contains("CODEX_ACCESS_TOKEN"), "{flag}: {code:?} {stderr}");
    }
    assert_eq!(service.count(Operation::Register), 0);
}

#[tokio::test]
async fn a_forwarder_that_the_service_refuses_says_so_and_ends() {
    let service = TestService::start().await;
    service.answer_next(Operation::Register, 1, RegistryAnswer::Status(403, String::new()));
    let home = tempfile::tempdir().unwrap();
    let mut command = program(home.path());
    let args = ["forward", "--connect", "ws://127.0.0.1:1", "--remote", &service.url(), "--environment-id", "e"];
    let output = within("the forwarder ends", command.args(args).output()).await.unwrap();
    let (_, stderr, code) = text_and_code(&output);
    assert_eq!(code, Some(125), "{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with("exec-server: ") && last.contains("403"), "{stderr}");
}

#[tokio::test]
async fn the_end_of_stdin_ends_a_forwarder_if_it_was_asked_to() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let mut forwarder = Forwarder::start_with(&service, server.url(), &["--exit-on-stdin-close"]).await;
    forwarder.close_stdin();
    assert_eq!(forwarder.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_harness_learns_that_the_forwarder_shuts_down() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let mut forwarder = Forwarder::start(&service, server.url()).await;
    let url = service.url();
    let connecting = ReferenceHarness::connect(&url, TestService::TOKEN, ENVIRONMENT);
    let mut harness = within("the harness is connected", connecting).await.unwrap();
    harness.send(br#"{"id":1,"method":"initialize","params":{"clientName":"published"}}"#).await.unwrap();
    within("the answer", harness.receive()).await.unwrap();
    forwarder.terminate();
    within("the end of the stream", harness.receive()).await.unwrap_err();
    assert_eq!(forwarder.exit_code().await, Some(0));
}
