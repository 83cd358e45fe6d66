//! A path in an environment, for commands that look at nothing else.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use client::{ExecServerClient, PathUri};

use super::args::TargetArgs;
use super::capabilities::environment_info;
use super::typed_path::TypedPath;

/// A path, and the environment it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemotePath {
    /// None: the environment that the flags choose.
    pub(crate) environment: Option<String>,
    pub(crate) path: PathBuf,
}

impl RemotePath {
    /// A path without an environment is in the one that the flags choose.
    pub(crate) fn parse(text: &str) -> Self {
        let (environment, path) = match TypedPath::parse(OsStr::new(text)) {
            TypedPath::Plain(path) => (None, path),
            TypedPath::There(environment, path) => (environment, path),
        };
        Self { environment: environment.map(str::to_owned), path: path.to_owned() }
    }

    /// The flags with this environment chosen.
    pub(crate) fn choose(&self, flags: &TargetArgs) -> anyhow::Result<TargetArgs> {
        let Some(name) = &self.environment else { return Ok(flags.clone()) };
        anyhow::ensure!(
            flags.flag().is_none(),
            "`{name}:` and a flag both choose an environment; write `:{}`",
            self.path.display()
        );
        Ok(TargetArgs { environment: Some(name.clone()), ..flags.clone() })
    }

    /// The path as the environment knows it: relative to the directory of its server.
    pub(crate) async fn uri(&self, client: &ExecServerClient) -> anyhow::Result<PathUri> {
        let path = if self.path.is_absolute() {
            self.path.clone()
        } else {
            let cwd = environment_info(client).await?.cwd.and_then(|cwd| cwd.to_native().ok());
            cwd.with_context(|| no_directory(&self.path))?.join(&self.path)
        };
        PathUri::from_native(&plain(&path)).with_context(|| format!("`{}` is no path", path.display()))
    }
}

/// Why a relative path means nothing in an environment that tells no directory.
pub(crate) fn no_directory(path: &Path) -> String {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    format!(
        "`{}` is relative, and this server does not say which directory it is in; write an absolute path",
        path.display()
    )
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
        let flags = TargetArgs { connect: Some("ws://x".into()), ..TargetArgs::default() };
        assert!(RemotePath::parse("box:a").choose(&flags).is_err());
        assert!(RemotePath::parse(":a").choose(&flags).is_ok());
        assert!(RemotePath::parse("a").choose(&flags).is_ok());
        let chosen = RemotePath::parse("box:a").choose(&TargetArgs::default()).unwrap();
        assert_eq!(chosen.environment.as_deref(), Some("box"));
    }
}
