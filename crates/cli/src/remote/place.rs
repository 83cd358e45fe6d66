//! A path in an environment, for commands that look at nothing else.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use client::{ExecServerClient, PathUri};

use super::args::WhereArgs;
use super::env_path::EnvPath;

/// A path, and the environment it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// None: the environment that the flags choose.
    pub(crate) environment: Option<String>,
    pub(crate) path: PathBuf,
}

impl Place {
    /// A path without an environment is in the one that the flags choose.
    pub(crate) fn parse(text: &str) -> Self {
        let (environment, path) = match EnvPath::parse(OsStr::new(text)) {
            EnvPath::Plain(path) => (None, path),
            EnvPath::There(environment, path) => (environment, path),
        };
        Self { environment: environment.map(str::to_owned), path: path.to_owned() }
    }

    /// The flags with this environment chosen.
    pub(crate) fn choose(&self, flags: &WhereArgs) -> anyhow::Result<WhereArgs> {
        let Some(name) = &self.environment else { return Ok(flags.clone()) };
        anyhow::ensure!(
            flags.flag().is_none(),
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
    fn an_environment_is_chosen_once() {
        let flags = WhereArgs { connect: Some("ws://x".into()), ..WhereArgs::default() };
        assert!(Place::parse("box:a").choose(&flags).is_err());
        assert!(Place::parse(":a").choose(&flags).is_ok());
        assert!(Place::parse("a").choose(&flags).is_ok());
        let chosen = Place::parse("box:a").choose(&WhereArgs::default()).unwrap();
        assert_eq!(chosen.environment.as_deref(), Some("box"));
    }
}
