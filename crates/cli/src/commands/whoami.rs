//! `whoami`: says which credentials there are, which one each service would get, and why. Nothing is sent, and no secret
//! is printed.

use std::collections::BTreeSet;
use std::process::ExitCode;

use client::{EnvironmentLocation, Environments, HomeAndVariables, RemoteCredential};
use exec_server::{CredentialDescription, KeyStore, SurveyedCredential, survey_credentials};
use serde_json::{Value, json};

use super::args::WhoamiArgs;
use super::login::key_store;
use super::print::print;
use crate::terminal_text::{json_line, readable};

/// What the command prints, as a value.
struct Answer {
    services: Vec<ServiceChoice>,
    found: Vec<SurveyedCredential>,
    /// Environments whose configuration names a token, which is used in place of `found`.
    own_tokens: Vec<OwnToken>,
    /// Why the configured environments are not known.
    configuration_problem: Option<String>,
}

/// The credential that one service gets.
struct ServiceChoice {
    service: String,
    /// `None`: nothing was found.
    first: Option<SurveyedCredential>,
}

/// An environment whose configuration names a token.
struct OwnToken {
    environment: String,
    service: String,
    source: String,
}

pub(crate) async fn whoami(args: WhoamiArgs) -> anyhow::Result<ExitCode> {
    let answer = Answer::find(&args)?;
    let text = if args.json { json_line(&answer.json()) } else { readable_lines(&answer.text(args.url.is_some())) };
    print(&text).await?;
    Ok(if answer.has_usable(args.url.is_some()) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The lines with visible escape sequences.
fn readable_lines(text: &str) -> String {
    text.lines().map(|line| readable(line) + "\n").collect()
}

impl Answer {
    fn find(args: &WhoamiArgs) -> anyhow::Result<Self> {
        let asked = args.url.as_deref().map(KeyStore::service_of).transpose()?;
        let (environments, configuration_problem) = match Environments::load(&HomeAndVariables::of_this_process()) {
            Ok(environments) => (environments, None),
            Err(error) => (Environments::default(), Some(error.to_string())),
        };
        let is_meant = |service: &String| asked.as_ref().is_none_or(|asked| asked == service);
        let mut own_tokens = Vec::new();
        let mut services: BTreeSet<String> = environments.service.iter().filter_map(|url| origin(url)).collect();
        for (id, spec) in &environments.entries {
            let EnvironmentLocation::Remote(location) = &spec.location else { continue };
            let Some(service) = origin(&location.service) else { continue };
            let source = match &location.credential {
                RemoteCredential::Found => {
                    services.insert(service);
                    continue;
                }
                RemoteCredential::TokenFile(path) => path.display().to_string(),
                RemoteCredential::Token { .. } => "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN".to_owned(),
            };
            own_tokens.push(OwnToken { environment: id.clone(), service, source });
        }
        own_tokens.retain(|token| is_meant(&token.service));
        // The survey below reports a damaged file.
        services.extend(key_store().ok().and_then(|store| store.services().ok()).unwrap_or_default());
        services.retain(is_meant);
        services.extend(asked.clone());
        let use_agent_identity = args.use_agent_identity_auth;
        let found = survey_credentials(asked.as_deref(), use_agent_identity)?;
        let first = |service: String| {
            let first = survey_credentials(Some(&service), use_agent_identity)?.into_iter().next();
            anyhow::Ok(ServiceChoice { service, first })
        };
        let services = services.into_iter().map(first).collect::<anyhow::Result<_>>()?;
        Ok(Self { services, found, own_tokens, configuration_problem })
    }

    /// Whether the asked service gets a credential, or, if none was asked for, whether there is one at all.
    fn has_usable(&self, is_asked: bool) -> bool {
        let mut services = self.services.iter();
        match is_asked {
            true => services.any(|service| matches!(&service.first, Some(first) if first.outcome.is_ok())),
            false => self.found.iter().any(|found| found.outcome.is_ok()),
        }
    }

    /// The answer for people. `is_asked`: about one service.
    fn text(&self, is_asked: bool) -> String {
        let mut lines: Vec<String> = self.services.iter().map(ServiceChoice::sentence).collect();
        lines.extend(self.own_tokens.iter().map(|token| {
            let OwnToken { environment, service, source } = token;
            format!("For the environment {environment}, {service} gets the token in {source} instead.")
        }));
        if self.found.is_empty() && !is_asked {
            lines.push(
                "There is no credential. Store a key with `exec-server login URL`, or set EXEC_SERVER_API_KEY."
                    .to_owned(),
            );
        }
        if !self.found.is_empty() {
            lines.push("Found, in the order in which credentials are looked for:".to_owned());
        }
        for (index, found) in self.found.iter().enumerate() {
            let name = named(found);
            lines.push(match (&found.outcome, is_asked) {
                (Err(error), _) if index == 0 || !is_asked => format!("  {name}: cannot be used: {error}"),
                (Ok(_), true) if index == 0 => format!("  {name}: used"),
                (Ok(_), true) => format!("  {name}: not used, because {} comes before it", self.found[0].source),
                (Err(error), _) => {
                    format!(
                        "  {name}: not used, because {} comes before it; otherwise: {error}",
                        self.found[0].source
                    )
                }
                (Ok(description), false) => format!("  {name}: goes to {}", description.destination),
            });
        }
        if let Some(problem) = &self.configuration_problem {
            lines.push(format!("The configured environments are not known: {problem}"));
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    fn json(&self) -> Value {
        let service = |choice: &ServiceChoice| {
            let used = choice.first.as_ref().and_then(|first| first.outcome.as_ref().ok());
            let problem = choice.first.as_ref().and_then(|first| first.outcome.as_ref().err());
            json!({
                "service": choice.service,
                "used": used.map(described),
                "problem": problem.map(ToString::to_string),
            })
        };
        let found = |found: &SurveyedCredential| match &found.outcome {
            Ok(description) => {
                let mut value = described(description);
                value["destination"] = description.destination.clone().into();
                value["problem"] = Value::Null;
                value
            }
            Err(error) => json!({
                "kind": found.kind.as_str(), "source": found.source, "account": null, "destination": null,
                "problem": error.to_string(),
            }),
        };
        let own_token = |token: &OwnToken| {
            let OwnToken { environment, service, source } = token;
            json!({"environment": environment, "service": service, "source": source})
        };
        json!({
            "services": self.services.iter().map(service).collect::<Vec<_>>(),
            "found": self.found.iter().map(found).collect::<Vec<_>>(),
            "environmentsWithTokens": self.own_tokens.iter().map(own_token).collect::<Vec<_>>(),
            "configurationProblem": self.configuration_problem,
        })
    }
}

impl ServiceChoice {
    fn sentence(&self) -> String {
        let service = &self.service;
        match &self.first {
            Some(SurveyedCredential { outcome: Ok(description), .. }) => {
                format!("{service} gets the {description}.")
            }
            Some(SurveyedCredential { outcome: Err(_), source, .. }) => {
                format!("{service} gets nothing: the first credential that was found, in {source}, cannot be used.")
            }
            None => format!(
                "{service} gets nothing. Store a key with `exec-server login {service}`, or set EXEC_SERVER_API_KEY."
            ),
        }
    }
}

fn named(found: &SurveyedCredential) -> String {
    match &found.outcome {
        Ok(description) => description.to_string(),
        Err(_) => format!("{} from {}", found.kind, found.source),
    }
}

fn described(description: &CredentialDescription) -> Value {
    json!({"kind": description.kind.as_str(), "source": description.source, "account": description.account})
}

fn origin(url: &str) -> Option<String> {
    KeyStore::service_of(url).ok()
}
