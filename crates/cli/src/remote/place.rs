//! `ENV:PATH`: a path in an environment.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use client::{ExecServerClient, PathUri};

use super::args::WhereArgs;

/// A path, and the environment it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// None: the environment that the flags choose.
    pub(crate) environment: Option<String>,
    pub(crate) path: PathBuf,
}

impl Place {
    /// What stands in front of the first colon is an environment, unless it has a slash.
    pub(crate) fn parse(text: &str) -> Self {
        match text.split_once(':') {
            Some((name, path)) if !name.contains('/') => {
                Self { environment: Some(name.to_owned()).filter(|name| !name.is_empty()), path: path.into() }
            }
            _ => Self { environment: None, path: text.into() },
        }
    }

    /// The flags with this environment chosen.
    pub(crate) fn choose(&self, flags: &WhereArgs) -> anyhow::Result<WhereArgs> {
        let Some(name) = &self.environment else { return Ok(flags.clone()) };
        let is_chosen = flags.connect.is_some() || flags.ssh.is_some() || flags.environment.is_some();
        anyhow::ensure!(
            !is_chosen,
            "`{name}:` and a flag both choose an environment; write `:{}`",
            self.path.display()
        );
        Ok(WhereArgs { environment: Some(name.clone()), ..flags.clone() })
    }

    /// The path as the environment knows it: relative to the directory of its server.
    pub(crate) async fn uri(&self, client: &ExecServerClient) -> anyhow::Result<PathUri> {
        let path = if self.path.is_absolute() { self.path.clone() } else { cwd(client).await?.join(&self.path) };
        PathUri::from_native(&plain(&path)).with_context(|| format!("`{}` is no path", path.display()))
    }
}

async fn cwd(client: &ExecServerClient) -> anyhow::Result<PathBuf> {
    let cwd = client.environment_info().await?.cwd;
    let cwd = cwd.context("the environment does not say where it is; give an absolute path")?;
    Ok(cwd.to_native()?)
}

/// Without `.` and a slash at its end.
fn plain(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_stands_in_front_of_a_colon() {
        let place = |environment: Option<&str>, path: &str| Place {
            environment: environment.map(str::to_owned),
            path: path.into(),
        };
        for (text, expected) in [
            ("box:/srv/a", place(Some("box"), "/srv/a")),
            ("box:", place(Some("box"), "")),
            (":a:b", place(None, "a:b")),
            ("a/b:c", place(None, "a/b:c")),
            ("src", place(None, "src")),
        ] {
            assert_eq!(Place::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn an_environment_is_chosen_once() {
        let flags = WhereArgs { connect: Some("ws://x".into()), ..WhereArgs::default() };
        assert!(Place::parse("box:a").choose(&flags).is_err());
        assert!(Place::parse(":a").choose(&flags).is_ok());
        let chosen = Place::parse("box:a").choose(&WhereArgs::default()).unwrap();
        assert_eq!(chosen.environment.as_deref(), Some("box"));
    }
}
