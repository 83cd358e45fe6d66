//! From what was typed to the start of a process.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use client::{ExecServerClient, PathUri, StartParams};

/// A start on pipes and without stdin, in the server's environment with `env` laid over it.
pub(crate) async fn start_params(
    client: &ExecServerClient,
    id: &str,
    command: &[String],
    cwd: Option<&Path>,
    env: &[String],
) -> anyhow::Result<StartParams> {
    let cwd = match cwd {
        Some(path) => {
            let absolute = std::path::absolute(path)?;
            PathUri::from_native(&absolute).with_context(|| format!("{} cannot be sent", path.display()))?
        }
        None => match client.environment_info().await?.cwd {
            Some(cwd) => cwd,
            None => PathUri::from_native(Path::new("/")).context("the root is no path")?,
        },
    };
    let env = variables(env, |name| std::env::var(name).ok())?;
    Ok(StartParams { env, ..StartParams::new(id, command, cwd) })
}

/// `NAME=VALUE`, or `NAME` for the value that we have; one that we do not have is left out.
fn variables(given: &[String], ours: impl Fn(&str) -> Option<String>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut variables = BTreeMap::new();
    for text in given {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text.as_str(), ours(text)),
        };
        anyhow::ensure!(!name.is_empty(), "`--env {text}` names no variable; write NAME=VALUE or NAME");
        if let Some(value) = value {
            variables.insert(name.to_owned(), value);
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_the_value_given_or_ours() {
        let ours = |name: &str| (name == "OURS").then(|| "here".to_owned());
        let given = ["A=1", "B==2", "OURS", "NOBODYS", "C="].map(str::to_owned);
        let expected = [("A", "1"), ("B", "=2"), ("C", ""), ("OURS", "here")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(variables(&given, ours).unwrap(), BTreeMap::from(expected));
        assert!(variables(&["=x".to_owned()], ours).is_err());
    }
}
