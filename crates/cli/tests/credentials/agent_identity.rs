//! The identity of an agent: only with the flag, and signed.

use std::sync::Arc;

use testkit::{HttpPeer, TestAgent, agent_assertion, eventually, json};

use crate::support::{User, header};

/// A time in the future, in seconds after the beginning of 1970.
const LATER: u64 = 4_000_000_000;

#[tokio::test]
async fn with_either_name_of_the_flag_a_task_is_registered_and_requests_are_signed() {
    let (user, agent) = (User::new(), Arc::new(TestAgent::generate()));
    let token = agent.token(&agent.claims(LATER));
    for flag in ["--use-agent-identity-auth", "--allow-agent-identity-auth"] {
        let issuers = agent.start_issuers(|| json!({"task_id": "task-7"}).to_string()).await;
        // Refuses every identity, so that the executor ends.
        let registry =
            HttpPeer::closing(|_| "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
        let issuer_url = issuers.url("");
        let variables = [
            ("CODEX_ACCESS_TOKEN", &*token),
            ("CODEX_API_KEY", "key-of-codex"),
            ("EXEC_SERVER_API_KEY", "own-key"),
            ("CODEX_AGENT_IDENTITY_AUTHAPI_BASE_URL", &*issuer_url),
            ("CODEX_AGENT_IDENTITY_JWKS_BASE_URL", &*issuer_url),
        ];
        let mut executor = user.unconnected_executor(&registry.url(""), &[flag], &variables);
        assert_eq!(executor.exit_code().await, Some(125));
        let requests = registry.requests();
        assert_eq!(requests.len(), 2, "another task is tried once: {requests:?}");
        for request in &requests {
            assert!(request.starts_with("POST /cloud/environment/build-7/register "), "{request}");
            let assertion = agent_assertion(header(request, "authorization").unwrap());
            let text = |name: &str| assertion[name].as_str().unwrap();
            let signed = format!("{}:{}:{}", TestAgent::RUNTIME_ID, text("task_id"), text("timestamp"));
            assert!(agent.has_signed(&signed, text("signature")));
            assert_eq!(header(request, "chatgpt-account-id"), Some(TestAgent::ACCOUNT));
            assert_eq!(header(request, "x-openai-fedramp"), Some("true"));
        }
        let tasks = issuers.requests().iter().filter(|request| request.contains("/task/register ")).count();
        assert_eq!(tasks, 2);
        eventually("the reason is logged", || executor.log().contains("HTTP 401").then_some(())).await;
        for secret in [&*token, agent.private_key(), "key-of-codex", "own-key", "AgentAssertion"] {
            assert!(!executor.log().contains(secret), "{secret}");
        }
    }
}

#[tokio::test]
async fn the_flag_needs_an_identity() {
    let user = User::new();
    for token in ["", "at-personal"] {
        let variables = [("CODEX_ACCESS_TOKEN", token), ("EXEC_SERVER_API_KEY", "own-key")];
        let mut executor =
            user.unconnected_executor("http://127.0.0.1:9", &["--use-agent-identity-auth"], &variables);
        assert_eq!(executor.exit_code().await, Some(125));
        let said = || executor.log().contains("CODEX_ACCESS_TOKEN holds no agent identity").then_some(());
        eventually("the reason is printed", said).await;
    }
}
