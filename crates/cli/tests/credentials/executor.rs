//! The headers of an executor, and where they go.

use testkit::service::{Leg, Operation, RegistryAnswer};
use testkit::{HttpPeer, TestService, eventually, http_ok, json};

use crate::support::{ENVIRONMENT, User, header};

const KEY: (&str, &str) = ("EXEC_SERVER_API_KEY", TestService::TOKEN);

#[tokio::test]
async fn each_call_of_both_ends_has_the_header_and_the_relay_gets_none() {
    let user = User::new();
    let service = TestService::start().await;
    // Records what is sent to the address that the registry names, and lets nothing through.
    let relay = HttpPeer::closing(|_| "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    let address = format!("127.0.0.1:{}", relay.port);
    service.route_through(Leg::Executor, &address);
    let executor = user.unconnected_executor(&service.url(), &[], &[KEY]);
    eventually("the executor dials", || (!relay.requests().is_empty()).then_some(())).await;
    let request = relay.requests()[0].to_ascii_lowercase();
    assert!(request.starts_with("get ") && request.contains("upgrade: websocket"), "{request}");
    assert!(!request.contains("authorization:") && !request.contains(TestService::TOKEN), "{request}");
    drop(executor);

    service.route_through(Leg::Executor, service.address());
    let executor = user.executor(&service, &[KEY]).await;
    let remote = service.url();
    let variables = [KEY, ("EXEC_SERVER_REMOTE", &*remote)];
    user.run_with(&["run", "-e", ENVIRONMENT, "--", "true"], &variables).await.succeeded();
    let calls = service.calls();
    for operation in [Operation::Register, Operation::Connect, Operation::Validate] {
        let call = calls.iter().find(|call| call.operation == operation).unwrap();
        assert_eq!(header(&call.head, "authorization"), Some(&*format!("Bearer {}", TestService::TOKEN)));
        assert_eq!(call.environment, ENVIRONMENT);
    }
    assert!(!executor.log().contains(TestService::TOKEN));
}

#[tokio::test]
async fn a_redirect_is_not_followed_by_either_end() {
    let user = User::new();
    let (service, stranger) = (TestService::start().await, HttpPeer::closing(|_| http_ok("{}")).await);
    let redirect = RegistryAnswer::Redirect(stranger.url("/cloud/environment/build-7/register"));
    service.answer_next(Operation::Register, 1, redirect.clone());
    let mut executor = user.unconnected_executor(&service.url(), &[], &[KEY]);
    assert_eq!(executor.exit_code().await, Some(125), "{}", executor.log());
    let advice = "HTTP 302: redirects are not followed; give the URL to which the service redirects";
    let said = || executor.log().contains(advice).then_some(());
    eventually("the reason is printed", said).await;
    let _executor = user.executor(&service, &[KEY]).await;
    service.answer_next(Operation::Connect, 1, redirect);
    let remote = service.url();
    let variables = [KEY, ("EXEC_SERVER_REMOTE", &*remote)];
    let stderr = user.run_with(&["run", "-e", ENVIRONMENT, "--", "true"], &variables).await.failed(125);
    assert!(stderr.contains(advice), "{stderr}");
    assert_eq!(stranger.connections_accepted(), 0);
}

#[tokio::test]
async fn a_credential_that_the_service_repeats_in_an_error_is_not_shown() {
    let user = User::new();
    let service = TestService::start().await;
    let message = format!("unknown key {0}, as in Authorization: Bearer {0}", TestService::TOKEN);
    let error = |code: &str| json!({"error": {"code": code, "message": message}}).to_string();
    service.answer_next(Operation::Register, 1, RegistryAnswer::Status(401, error("unauthorized")));
    let mut executor = user.unconnected_executor(&service.url(), &[], &[KEY]);
    assert_eq!(executor.exit_code().await, Some(125));
    let shown = || executor.log().contains("unknown key [secret], as in").then_some(());
    eventually("the reason is printed", shown).await;
    assert!(!executor.log().contains(TestService::TOKEN), "{}", executor.log());
    let remote = service.url();
    let variables = [KEY, ("EXEC_SERVER_REMOTE", &*remote)];
    let not_json = format!("<p>{message}</p>");
    for (status, body) in [(404, error(TestService::TOKEN)), (400, not_json), (403, error("forbidden"))] {
        service.answer_next(Operation::Connect, 1, RegistryAnswer::Status(status, body));
        let stderr = user.run_with(&["run", "-e", ENVIRONMENT, "--", "true"], &variables).await.failed(125);
        assert!(stderr.contains("unknown key [secret]") && !stderr.contains(TestService::TOKEN), "{stderr}");
    }
}

#[tokio::test]
async fn the_log_has_no_character_of_the_service_that_turns_the_direction_of_writing() {
    let user = User::new();
    let service = TestService::start().await;
    let body =
        json!({"error": {"message": "left\u{202e}right\u{61c}\u{2066}end", "code": "co\u{200f}de"}}).to_string();
    service.answer_next(Operation::Register, 1, RegistryAnswer::Status(404, body));
    let mut executor = user.unconnected_executor(&service.url(), &[], &[KEY]);
    assert_eq!(executor.exit_code().await, Some(125));
    let shown = || executor.log().contains("HTTP 404 (co de): left right end").then_some(());
    eventually("the reason is printed", shown).await;
    let turning = ['\u{61c}', '\u{200f}', '\u{202e}', '\u{2066}'];
    assert!(!executor.log().contains(turning), "{:?}", executor.log());
}

#[tokio::test]
async fn a_credential_that_is_not_for_the_service_is_an_error_before_anything_is_sent() {
    let user = User::new();
    for (variable, value, url, problem) in [
        (
            "CODEX_API_KEY",
            "sk-secret",
            "https://service.invalid",
            "it goes only to openai.com, openai.org and this machine",
        ),
        ("CODEX_API_KEY", "sk-secret", "http://api.openai.com", "others could read it on the way"),
        (
            "CODEX_ACCESS_TOKEN",
            "at-secret",
            "https://service.invalid",
            "it goes only to openai.com, openai.org, chatgpt.com",
        ),
        ("EXEC_SERVER_API_KEY", "sk-secret", "http://service.invalid", "others could read it on the way"),
        ("CODEX_ACCESS_TOKEN", "a.secret.c", "https://chatgpt.com", "is used only with --use-agent-identity-auth"),
    ] {
        let mut executor = user.unconnected_executor(url, &[], &[(variable, value)]);
        assert_eq!(executor.exit_code().await, Some(125));
        let said = || executor.log().contains(problem).then_some(());
        eventually("the reason is printed", said).await;
        assert!(!executor.log().contains("secret"), "{}", executor.log());
    }
}

#[tokio::test]
async fn a_service_on_this_machine_is_not_asked_through_a_proxy() {
    let user = User::new();
    let service = TestService::start().await;
    let proxy = HttpPeer::closing(|_| http_ok("{}")).await;
    let proxy_url = proxy.url("");
    let variables = ["HTTP_PROXY", "http_proxy", "ALL_PROXY"].map(|name| (name, &*proxy_url));
    let _executor = user.executor(&service, &[&variables[..], &[KEY]].concat()).await;
    let remote = service.url();
    let variables = [&variables[..], &[KEY, ("EXEC_SERVER_REMOTE", &*remote)]].concat();
    let run = ["run", "-e", ENVIRONMENT, "--", "true"];
    user.run_with(&run, &variables).await.succeeded();
    assert_eq!(proxy.connections_accepted(), 0, "{:?}", proxy.requests());
}
