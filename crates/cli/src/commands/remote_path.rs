//! A path in an environment, which is a machine with a server. `search` and `watch` use it: for them every path is in
//! an environment, also one without a colon.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use client::{ExecServerClient, PathUri, SandboxContext};

use super::args::TargetArgs;
use super::capabilities::environment_info;
use super::destination::Destination;
use super::sandbox_flags::SandboxArgs;
use super::typed_path::TypedPath;

/// A path, and the environment it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemotePath {
    /// The name before the colon. `None`: the environment that the flags choose.
    pub(crate) environment: Option<String>,
    pub(crate) path: PathBuf,
}

impl RemotePath {
    /// Parses `ENV:PATH`, `:PATH` or `PATH`. Without a name, the path is in the environment that the flags choose.
    pub(crate) fn parse(text: &str) -> Self {
        let (environment, path) = match TypedPath::parse(OsStr::new(text)) {
            TypedPath::Plain(path) => (None, path),
            TypedPath::InEnvironment(environment, path) => (environment, path),
        };
        Self { environment: environment.map(str::to_owned), path: path.to_owned() }
    }

    /// The environment of this path. It is an error if the path and a flag both name one.
    pub(crate) fn destination(&self, flags: &TargetArgs) -> anyhow::Result<Destination> {
        let Some(name) = &self.environment else { return Destination::choose(flags) };
        anyhow::ensure!(
            flags.flag().is_none(),
            "`{name}:` and a flag both choose an environment; write `:{}`",
            self.path.display()
        );
        Destination::named(name, flags)
    }

    /// The path as a URI. A relative path begins in the working directory of the server.
    pub(crate) async fn uri(&self, client: &ExecServerClient) -> anyhow::Result<PathUri> {
        let path = if self.path.is_absolute() {
            self.path.clone()
        } else {
            working_directory(client).await?.with_context(|| no_directory(&self.path))?.join(&self.path)
        };
        PathUri::from_native(&normalized(&path)).with_context(|| format!("`{}` is no path", path.display()))
    }
}

/// The error for a sandbox in an environment whose server does not name its working directory.
pub(crate) const NO_WORKSPACE: &str =
    "this server does not say which directory it is in, so there is no workspace for --sandbox";

/// The sandbox that the flags ask for. Its workspace is the working directory of the server.
pub(crate) async fn requested_sandbox(
    flags: &SandboxArgs,
    client: &ExecServerClient,
) -> anyhow::Result<Option<SandboxContext>> {
    if !flags.is_given() {
        return Ok(None);
    }
    flags.context(&working_directory(client).await?.context(NO_WORKSPACE)?)
}

async fn working_directory(client: &ExecServerClient) -> anyhow::Result<Option<PathBuf>> {
    Ok(environment_info(client).await?.cwd.and_then(|cwd| cwd.to_native().ok()))
}

/// The error for a relative path in an environment whose server does not name its working directory.
pub(crate) fn no_directory(path: &Path) -> String {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    format!(
        "`{}` is relative, and this server does not say which directory it is in; write an absolute path",
        path.display()
    )
}

/// The path without `.` parts and without a slash at its end.
fn normalized(path: &Path) -> PathBuf {
    path.components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_before_the_colon_and_a_flag_cannot_both_choose_the_environment() {
        let flags = TargetArgs { connect: Some("ws://x".into()), ..TargetArgs::default() };
        assert!(RemotePath::parse("box:a").destination(&flags).is_err());
        assert!(RemotePath::parse(":a").destination(&flags).is_ok());
        assert!(RemotePath::parse("a").destination(&flags).is_ok());
    }
}
