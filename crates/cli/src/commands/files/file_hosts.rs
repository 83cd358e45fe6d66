//! The machines that the paths of a command are on: this one, and environments, which are machines with an
//! exec-server. This module turns paths as they are typed into paths on machines, and connects to each environment
//! once. Start reading at [`FileHosts::resolve`].

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use client::{
    Capabilities, ConnectionState, EnvironmentLocation, ExecServerClient, ExecutorFileSystem, LocalFileSystem,
    SandboxedFileSystem,
};

use super::super::args::TargetArgs;
use super::super::capabilities::environment_info;
use super::super::destination::Destination;
use super::super::remote_path::{NO_WORKSPACE, no_directory};
use super::super::sandbox_flags::SandboxArgs;
use super::super::typed_path::TypedPath;
use super::host_path::HostPath;

/// A machine, and access to its files.
pub(crate) struct FileHost {
    pub(crate) files: Box<dyn ExecutorFileSystem>,
    /// `None` for this machine.
    client: Option<ExecServerClient>,
    /// The capabilities of the server. `None` for this machine, which has all of them.
    server: Option<Capabilities>,
    /// The directory in which relative paths begin. `None` if the server does not name its working directory.
    base: Option<PathBuf>,
}

impl FileHost {
    /// Whether the files are those of this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.client.is_none()
    }

    /// Whether the connection is lost and the client tries to make it again.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.client.as_ref().map(ExecServerClient::connection_state);
        state.is_some_and(|state| matches!(*state.borrow(), ConnectionState::Recovering(_)))
    }

    /// Whether modes and times of files can be read and set. A server that cannot set them does not report them
    /// either.
    pub(crate) fn has_modes(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.fs_set_metadata)
    }

    /// Whether symbolic links can be read and made.
    pub(crate) fn has_links(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.fs_links)
    }
}

/// Which machine a path without the name of an environment is on: `PATH`, not `ENV:PATH` or `:PATH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainPaths {
    /// On this machine, whatever the flags are. `cp` needs this, because its paths are on two machines.
    Local,
    /// In the environment that `-e`, `--connect` or `--ssh` chooses, or on this machine without such a flag.
    FollowFlags,
}

/// The machines that the paths of one command are on.
pub(crate) struct FileHosts<'a> {
    flags: &'a TargetArgs,
    /// The sandbox of all files, except those of this machine with [`PlainPaths::Local`].
    sandbox: &'a SandboxArgs,
    plain_paths: PlainPaths,
    /// This machine. In a sandbox it is reached through a server, which enforces the sandbox.
    local: Arc<FileHost>,
    /// The machines of the environments that the paths are in, by the names of the environments. `None` is the
    /// environment that the flags choose, or else the default. An environment can also be this machine.
    environments: BTreeMap<Option<String>, Arc<FileHost>>,
}

impl<'a> FileHosts<'a> {
    pub(crate) fn new(
        flags: &'a TargetArgs,
        sandbox: &'a SandboxArgs,
        plain_paths: PlainPaths,
    ) -> anyhow::Result<Self> {
        let base = std::env::current_dir().context("cannot find out the current directory")?;
        let local =
            Arc::new(FileHost { files: Box::new(LocalFileSystem), client: None, server: None, base: Some(base) });
        Ok(Self { flags, sandbox, plain_paths, local, environments: BTreeMap::new() })
    }

    /// Turns typed paths into paths on machines, in the same order, and connects to the environments that they are
    /// in. It checks that every environment is configured before it connects to the first. An error means that no
    /// file was touched.
    pub(crate) async fn resolve(&mut self, texts: &[OsString]) -> anyhow::Result<Vec<HostPath>> {
        let typed = texts.iter().map(|text| self.parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut destinations = BTreeMap::new();
        if let Some(flag) = self.flags.flag() {
            destinations.insert(None, self.destination(None)?);
            let is_used = typed.iter().any(|path| matches!(path, TypedPath::InEnvironment(None, _)));
            anyhow::ensure!(
                is_used,
                "no path is in the environment that {flag} chooses; write :PATH for a path in it"
            );
        }
        for (path, text) in typed.iter().zip(texts) {
            if let TypedPath::InEnvironment(name, _) = path {
                let destination = self.destination(*name).map_err(|error| match name {
                    Some(_) => {
                        let text = text.display();
                        error.context(format!(
                            "{text} names an environment; write ./{text} for a file of this machine"
                        ))
                    }
                    None => error,
                });
                destinations.insert(*name, destination?);
            }
        }
        if self.sandbox.is_given() {
            let has_local = typed.iter().any(|path| matches!(path, TypedPath::Plain(_)));
            match self.plain_paths {
                PlainPaths::Local => anyhow::ensure!(
                    !destinations.is_empty(),
                    "--sandbox is about files of an environment, and all paths are on this machine; write :PATH for a \
                     path in the environment"
                ),
                PlainPaths::FollowFlags if has_local => {
                    self.local = self.connect(Destination::this_machine(self.flags)).await?;
                }
                PlainPaths::FollowFlags => {}
            }
        }
        for (name, destination) in destinations {
            let host = self.connect(destination).await?;
            self.environments.insert(name.map(str::to_owned), host);
        }
        let on_host = |(path, text): (&TypedPath<'_>, &OsString)| {
            let (host, path) = match path {
                TypedPath::Plain(path) => (&self.local, path),
                TypedPath::InEnvironment(name, path) => {
                    (self.environments.get(&name.map(str::to_owned)).unwrap_or(&self.local), path)
                }
            };
            let path = match &host.base {
                _ if path.is_absolute() => (*path).to_owned(),
                // To join the empty path would add a slash.
                Some(base) if path.as_os_str().is_empty() => base.clone(),
                Some(base) => base.join(path),
                None => anyhow::bail!(no_directory(path)),
            };
            Ok(HostPath { host: Arc::clone(host), path, typed: PathBuf::from(text) })
        };
        typed.iter().zip(texts).map(on_host).collect()
    }

    /// Parses a typed path. With [`PlainPaths::FollowFlags`], a plain path is in the environment that the flags
    /// choose.
    fn parse<'t>(&self, text: &'t OsStr) -> anyhow::Result<TypedPath<'t>> {
        match TypedPath::parse(text) {
            TypedPath::Plain(path) => {
                anyhow::ensure!(!path.as_os_str().is_empty(), "an empty path names nothing");
                let is_in_environment = self.plain_paths == PlainPaths::FollowFlags && self.flags.flag().is_some();
                Ok(if is_in_environment { TypedPath::InEnvironment(None, path) } else { TypedPath::Plain(path) })
            }
            path @ TypedPath::InEnvironment(..) => Ok(path),
        }
    }

    /// The environment of this name. For `None`, the one that the flags choose, or the default.
    fn destination(&self, name: Option<&str>) -> anyhow::Result<Destination> {
        match name {
            Some(name) => Destination::named(name, self.flags),
            None => Destination::choose(self.flags),
        }
    }

    async fn connect(&self, destination: Destination) -> anyhow::Result<Arc<FileHost>> {
        if matches!(destination.location, EnvironmentLocation::Local) && !self.sandbox.is_given() {
            return Ok(Arc::clone(&self.local));
        }
        let client = destination.connect().await?;
        let info = environment_info(&client).await?;
        let base = info.cwd.and_then(|cwd| cwd.to_native().ok());
        let mut files: Box<dyn ExecutorFileSystem> = Box::new(client.file_system());
        if self.sandbox.is_given() {
            let workspace = base.as_deref().context(NO_WORKSPACE)?;
            if let Some(sandbox) = self.sandbox.context(workspace)? {
                files = Box::new(SandboxedFileSystem::new(files, sandbox));
            }
        }
        let server = Some(info.capabilities);
        Ok(Arc::new(FileHost { files, client: Some(client), server, base }))
    }

    /// The machines of all environments that the paths are in.
    pub(crate) fn environments(&self) -> Vec<Arc<FileHost>> {
        self.environments.values().cloned().collect()
    }

    /// Closes all connections.
    pub(crate) async fn close(self) {
        for host in self.environments.into_values().chain([self.local]) {
            if let Some(client) = host.client.clone() {
                client.close().await;
            }
        }
    }
}
