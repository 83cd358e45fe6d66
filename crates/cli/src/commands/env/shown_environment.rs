//! `env show`: the configuration of one environment and, if it is behind a relay, the fingerprint of its key and the line
//! that pins the key. Texts of the configuration and of services are printed with
//! visible escape sequences.

use std::path::Path;
use std::process::ExitCode;

use client::{EnvironmentLocation, Environments, EnvironmentsSource, HomeAndVariables, PathMap, RemoteLocation};
use serde_json::{Value, json};

use super::environment_list::{EnvironmentList, ListedEnvironment};
use crate::commands::args::{EnvShowArgs, TargetArgs};
use crate::commands::destination::Destination;
use crate::commands::print::print;
use crate::commands::signals::Signals;
use crate::terminal_text::{error_line, json_line, readable};

/// Longest id of a table in environments.toml.
const MAX_ID_CHARS: usize = 64;

/// The key of an executor, as the service and the configuration name it.
struct NamedKey {
    /// The fingerprint, or the reason why the service names none.
    fingerprint: Result<String, String>,
    pinned: Option<String>,
}

pub(super) async fn show(args: EnvShowArgs) -> anyhow::Result<ExitCode> {
    let is_in_file = is_in_file(&args.environment)?;
    let flags = TargetArgs {
        environment: Some(args.environment),
        ca_file: args.ca_file,
        client_token_file: args.client_token_file,
        ..TargetArgs::default()
    };
    let list = EnvironmentList::load(&flags)?;
    let Some(environment) = list.environments.first() else { return Ok(ExitCode::FAILURE) };
    let mut signals = Signals::listen()?;
    let key = match signals.or_fatal(named_key(&environment.destination)).await {
        Ok(key) => key?,
        Err(fatal) => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let text = if args.json {
        json_line(&as_json(environment, key.as_ref()))
    } else {
        as_text(environment, key.as_ref(), is_in_file).iter().map(|line| readable(line) + "\n").collect()
    };
    print(&text).await?;
    let is_well = key.is_none_or(|key| key.is_as_pinned());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether `environments.toml` has a table for the environment. Other environments come from variables or from a service.
fn is_in_file(name: &str) -> anyhow::Result<bool> {
    let (environments, source) = Environments::load_with_source(&HomeAndVariables::of_this_process())?;
    Ok(matches!(source, EnvironmentsSource::File { .. }) && environments.entries.contains_key(name))
}

/// Asks the service for the key. `None` if the environment is not behind a relay.
async fn named_key(destination: &Destination) -> anyhow::Result<Option<NamedKey>> {
    let EnvironmentLocation::Remote(location) = &destination.location else { return Ok(None) };
    let connector = destination.relay_connector(location)?;
    let named = connector.harness().named_key().await;
    let fingerprint = named.map(|key| key.fingerprint()).map_err(|error| error_line(&error.into()));
    Ok(Some(NamedKey { fingerprint, pinned: location.pinned_key.clone() }))
}

impl NamedKey {
    fn is_as_pinned(&self) -> bool {
        let named = self.fingerprint.as_ref().ok();
        named.is_some_and(|named| self.pinned.as_ref().is_none_or(|pinned| pinned == named))
    }
}

fn as_text(environment: &ListedEnvironment, key: Option<&NamedKey>, is_in_file: bool) -> Vec<String> {
    let destination = &environment.destination;
    let name = destination.name.clone().unwrap_or_default();
    let mut lines = vec![format!("{name}: {}", destination.address())];
    let file = |path: &Option<std::path::PathBuf>, otherwise: &str| match path {
        Some(path) => path.display().to_string(),
        None => otherwise.to_owned(),
    };
    match &destination.location {
        EnvironmentLocation::Local => lines.push("  a server is started for each command".to_owned()),
        EnvironmentLocation::Url { url, ca_file, token_file } => {
            if url.to_ascii_lowercase().starts_with("wss:") {
                lines.push(format!("  certificates: {}", file(ca_file, "those that the system trusts")));
            }
            lines.push(format!("  token: {}", file(token_file, "none")));
        }
        EnvironmentLocation::Program { cwd, .. } => {
            lines.push(format!("  working directory: {}", file(cwd, "that of the command")));
        }
        EnvironmentLocation::Ssh { program, paths, .. } => {
            lines.push(format!("  server program: {program}"));
            if *paths != PathMap::default() {
                lines.push("  paths are mapped between two directories".to_owned());
            }
        }
        EnvironmentLocation::Remote(location) => {
            if let Some(path) = &location.ca_file {
                lines.push(format!("  certificates: {}", path.display()));
            }
            lines.extend(key.into_iter().flat_map(|key| key_lines(&name, location, key, is_in_file)));
        }
    }
    lines
}

fn key_lines(name: &str, location: &RemoteLocation, key: &NamedKey, is_in_file: bool) -> Vec<String> {
    let pinned = key.pinned.as_deref();
    let named = match &key.fingerprint {
        Ok(named) => named,
        Err(reason) => {
            let pinned = pinned.map(|pinned| format!("  pinned key: {pinned}"));
            return pinned.into_iter().chain([format!("  the key is not known: {reason}")]).collect();
        }
    };
    match pinned {
        Some(pinned) if pinned == named => vec![format!("  key: {named} (pinned)")],
        Some(pinned) => vec![
            format!("  key: {named}"),
            format!("  pinned key: {pinned}"),
            "  The key has changed, so no command uses this environment. If the executor was set up again, compare the \
             key with the one that it has printed, and write it into environments.toml; otherwise somebody may be \
             pretending to be this environment."
                .to_owned(),
        ],
        None => {
            let place = if is_in_file { "to its table in environments.toml" } else { "to environments.toml" };
            let mut lines = vec![
                format!("  key: {named} (not pinned)"),
                format!("  Compare the key with the one that the executor has printed. To accept only this key, add {place}:"),
            ];
            if !is_in_file {
                lines.push("    [[environments]]".to_owned());
                lines.push(format!("    id = \"{}\"", table_id(name)));
                lines.push(format!("    remote = {}", toml_text(&service_without_secrets(&location.service))));
                lines.push(format!("    environment_id = {}", toml_text(&location.environment_id)));
            }
            lines.push(format!("    pinned_key = \"{named}\""));
            lines
        }
    }
}

/// The URL of a service without user, password, query and fragment. None of them is sent to the service.
fn service_without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    // Further slashes before the host count for nothing.
    let rest = rest.trim_start_matches(['/', '\\']).split(['?', '#']).next().unwrap_or_default();
    // A path may contain `@` too.
    let (authority, path) = rest.split_at(rest.find(['/', '\\']).unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// The name as an id that environments.toml allows: other characters become `-`, and a long name is cut.
fn table_id(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    name.chars().take(MAX_ID_CHARS).map(allowed).collect()
}

/// A string of TOML. One of JSON has the same form.
fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

fn as_json(environment: &ListedEnvironment, key: Option<&NamedKey>) -> Value {
    let mut value = environment.json();
    if let Some(members) = value.as_object_mut() {
        // `env show` always shows the environment that was asked for.
        members.remove("isDefault");
    }
    match &environment.destination.location {
        EnvironmentLocation::Program { cwd, .. } => value["directory"] = path_json(cwd.as_deref()),
        EnvironmentLocation::Ssh { program, .. } => value["program"] = program.clone().into(),
        _ => {}
    }
    if let Some(key) = key {
        value["executor"] = json!({
            "key": key.fingerprint.as_ref().ok(),
            "problem": key.fingerprint.as_ref().err(),
            "isPinned": key.pinned.is_some(),
            "isAsPinned": key.pinned.is_some() && key.is_as_pinned(),
        });
    }
    value
}

fn path_json(path: Option<&Path>) -> Value {
    path.map_or(Value::Null, |path| path.to_string_lossy().into())
}
