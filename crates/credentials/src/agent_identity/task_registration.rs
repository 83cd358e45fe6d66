//! Registers a task for an agent. The service answers with the id of the task, as text or in a sealed box that only
//! the agent can open. Start with [`register`].

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use fetch::Fetcher;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::agent::Agent;
use super::below;
use crate::clock::{WallClock, rfc3339};
use crate::error::CredentialError;
use crate::token_request::IssuerRequest;

/// Time for one try.
const TRY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a registration is tried, if the service does not answer or is overloaded.
const TRIES: u32 = 3;
/// The pause after the first try. It doubles after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Longest id of a task, in bytes. It is a part of each request.
const LONGEST_TASK_ID: usize = 1024;

#[derive(Deserialize)]
struct RegistrationAnswer {
    #[serde(alias = "taskId")]
    task_id: Option<String>,
    #[serde(alias = "encryptedTaskId")]
    encrypted_task_id: Option<String>,
}

/// Registers a task and returns its id.
pub(super) async fn register(
    agent: &Agent,
    base: &Url,
    fetcher: &Fetcher,
    clock: &dyn WallClock,
) -> Result<String, CredentialError> {
    let request = IssuerRequest {
        issuer: "the registry of agent tasks",
        url: below(base, &["v1", "agent", agent.runtime_id(), "task", "register"]),
        timeout: TRY_TIMEOUT,
    };
    let mut pause = FIRST_PAUSE;
    let mut tries_left = TRIES;
    loop {
        let timestamp = rfc3339(clock.now());
        let signature = agent.sign(&format!("{}:{timestamp}", agent.runtime_id()));
        let body = json!({"timestamp": timestamp, "signature": signature});
        tries_left -= 1;
        match request.post_json::<RegistrationAnswer>(fetcher, &body).await {
            Ok(answer) => return task_id(answer, agent).map_err(|problem| request.fault(problem)),
            Err(error) if tries_left == 0 || !error.is_retryable() => return Err(error),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause *= 2;
    }
}

fn task_id(answer: RegistrationAnswer, agent: &Agent) -> Result<String, &'static str> {
    let id = match (answer.task_id, answer.encrypted_task_id) {
        (Some(id), _) => id,
        (None, Some(sealed)) => {
            let sealed = BASE64_STANDARD.decode(sealed.trim()).ok();
            let opened = sealed.and_then(|sealed| agent.open(&sealed));
            let text = opened.and_then(|bytes| String::from_utf8(bytes).ok());
            text.ok_or("has sent a task id that the key of the agent cannot open")?
        }
        (None, None) => return Err("has sent no task id"),
    };
    if id.trim().is_empty() || id.len() > LONGEST_TASK_ID {
        return Err("has sent an invalid task id");
    }
    Ok(id)
}
