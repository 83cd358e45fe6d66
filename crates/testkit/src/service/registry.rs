//! The registry of the [`TestService`](super::TestService): who is registered, and who may use whom. It knows no
//! sockets.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};

use super::script::{AnswerAlteration, Leg, Operation, RegistryAnswer, RegistryCall};

const SECURITY_PROFILE: &str = "noise_hybrid_ik_v1";

/// An executor and the URL that it has.
struct KnownExecutor {
    registration_id: String,
    /// The public key, as the executor has sent it.
    key: Value,
    secret: String,
}

/// What a harness was given: a way to one registration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HarnessGrant {
    pub(super) environment: String,
    pub(super) registration_id: String,
    /// The public key, as the harness has sent it.
    pub(super) key: Value,
}

/// The state of the registry.
pub(super) struct ScriptedRegistry {
    /// `IP:PORT` in the URLs of each leg.
    pub(super) addresses: HashMap<Leg, String>,
    pub(super) token: String,
    executors: HashMap<String, KnownExecutor>,
    harness_secrets: HashMap<String, HarnessGrant>,
    authorizations: HashMap<String, HarnessGrant>,
    answers: HashMap<Operation, VecDeque<RegistryAnswer>>,
    alterations: HashMap<Operation, AnswerAlteration>,
    calls: Vec<RegistryCall>,
    last_number: u64,
}

impl ScriptedRegistry {
    pub(super) fn new(address: &str, token: &str) -> Self {
        let addresses = [Leg::Executor, Leg::Harness].map(|leg| (leg, address.to_owned())).into();
        Self {
            addresses,
            token: token.to_owned(),
            executors: HashMap::new(),
            harness_secrets: HashMap::new(),
            authorizations: HashMap::new(),
            answers: HashMap::new(),
            alterations: HashMap::new(),
            calls: Vec::new(),
            last_number: 0,
        }
    }

    pub(super) fn add_answers(&mut self, operation: Operation, times: usize, answer: &RegistryAnswer) {
        self.answers.entry(operation).or_default().extend(std::iter::repeat_n(answer.clone(), times));
    }

    pub(super) fn forget_answers(&mut self, operation: Operation) {
        self.answers.remove(&operation);
    }

    pub(super) fn alter(&mut self, operation: Operation, alteration: AnswerAlteration) {
        self.alterations.insert(operation, alteration);
    }

    pub(super) fn calls(&self) -> &[RegistryCall] {
        &self.calls
    }

    /// Answers a call. `is_online` says whether the executor with a registration id has a socket.
    pub(super) fn call(&mut self, call: RegistryCall, is_online: impl Fn(&str) -> bool) -> RegistryAnswer {
        self.calls.push(call.clone());
        if let Some(answer) = self.answers.get_mut(&call.operation).and_then(VecDeque::pop_front) {
            return answer;
        }
        let bearer = format!("authorization: bearer {}", self.token.to_ascii_lowercase());
        if !call.head.lines().any(|line| line.to_ascii_lowercase() == bearer) {
            return refusal(401, "unauthorized", "the token is missing or wrong");
        }
        let answer = match call.operation {
            Operation::Register => self.register(&call.environment, &call.body),
            Operation::Connect => self.connect(&call.environment, &call.body, is_online),
            Operation::Validate => self.validate(&call.environment, &call.body),
        };
        match (answer, self.alterations.get_mut(&call.operation)) {
            (RegistryAnswer::Json(mut body), Some(alter)) => {
                alter(&mut body);
                RegistryAnswer::Json(body)
            }
            (answer, _) => answer,
        }
    }

    fn register(&mut self, environment: &str, body: &Value) -> RegistryAnswer {
        let key = &body["executor_public_key"];
        if body["security_profile"] != SECURITY_PROFILE || !is_key(key) {
            return refusal(400, "bad_request", "not a registration");
        }
        // The same executor keeps its registration, so that harnesses that have a bundle can still use it.
        let registration_id = match self.executors.get(environment) {
            Some(known) if known.key == *key => known.registration_id.clone(),
            _ => self.mint("registration"),
        };
        let secret = self.mint("secret");
        let url = self.url(Leg::Executor, "environment", &secret);
        let known = KnownExecutor { registration_id: registration_id.clone(), key: key.clone(), secret };
        self.executors.insert(environment.to_owned(), known);
        RegistryAnswer::Json(json!({
            "environment_id": environment,
            "url": url,
            "security_profile": SECURITY_PROFILE,
            "executor_registration_id": registration_id,
        }))
    }

    fn connect(&mut self, environment: &str, body: &Value, is_online: impl Fn(&str) -> bool) -> RegistryAnswer {
        let key = &body["harness_public_key"];
        if !is_key(key) {
            return refusal(400, "bad_request", "not a public key");
        }
        let online = self.executors.get(environment).filter(|known| is_online(&known.registration_id));
        let Some(executor) = online else {
            return refusal(409, "environment_offline", "no executor is connected");
        };
        let (registration_id, executor_key) = (executor.registration_id.clone(), executor.key.clone());
        let grant = HarnessGrant {
            environment: environment.to_owned(),
            registration_id: registration_id.clone(),
            key: key.clone(),
        };
        let (secret, authorization) = (self.mint("secret"), self.mint("authorization"));
        self.harness_secrets.insert(secret.clone(), grant.clone());
        self.authorizations.insert(authorization.clone(), grant);
        RegistryAnswer::Json(json!({
            "environment_id": environment,
            "url": self.url(Leg::Harness, "harness", &secret),
            "security_profile": SECURITY_PROFILE,
            "executor_registration_id": registration_id,
            "executor_public_key": executor_key,
            "harness_key_authorization": authorization,
        }))
    }

    /// An authorization is good for one answer.
    fn validate(&mut self, environment: &str, body: &Value) -> RegistryAnswer {
        let member = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
        let shown = HarnessGrant {
            environment: environment.to_owned(),
            registration_id: member("executor_registration_id"),
            key: body["harness_public_key"].clone(),
        };
        let granted = self.authorizations.remove(&member("harness_key_authorization"));
        RegistryAnswer::Json(json!({"valid": granted == Some(shown)}))
    }

    /// The registration behind the URL of an executor.
    pub(super) fn registration_of(&self, secret: &str) -> Option<String> {
        let known = self.executors.values().find(|known| known.secret == secret)?;
        Some(known.registration_id.clone())
    }

    /// The grant behind the URL of a harness.
    pub(super) fn grant_of(&self, secret: &str) -> Option<HarnessGrant> {
        self.harness_secrets.get(secret).cloned()
    }

    /// The other registrations of the environment of this one are over.
    pub(super) fn is_current(&self, registration_id: &str) -> bool {
        self.executors.values().any(|known| known.registration_id == registration_id)
    }

    /// No URL that was given out is accepted any more.
    pub(super) fn expire_urls(&mut self, leg: Leg) {
        match leg {
            Leg::Executor => self.executors.values_mut().for_each(|known| known.secret.clear()),
            Leg::Harness => self.harness_secrets.clear(),
        }
    }

    fn url(&self, leg: Leg, role: &str, secret: &str) -> String {
        format!("ws://{}/relay?role={role}&secret={secret}", self.addresses[&leg])
    }

    fn mint(&mut self, kind: &str) -> String {
        self.last_number += 1;
        format!("{kind}-{}", self.last_number)
    }
}

fn is_key(key: &Value) -> bool {
    ["suite", "x25519_public_key", "mlkem768_public_key"].iter().all(|name| key[name].is_string())
}

fn refusal(status: u16, code: &str, message: &str) -> RegistryAnswer {
    RegistryAnswer::Status(status, json!({"error": {"code": code, "message": message}}).to_string())
}
