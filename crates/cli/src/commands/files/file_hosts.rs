//! From a path as it is typed to a file system and a path in it. Each environment is connected to once.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use client::{
    Capabilities, ConnectionState, DirectoryEntry, ExecServerClient, ExecutorFileSystem, FileSystemError,
    LocalFileSystem, PathUri, Way,
};

use super::super::args::TargetArgs;
use super::super::capabilities::environment_info;
use super::super::destination::Destination;
use super::super::remote_path::no_directory;
use super::super::typed_path::TypedPath;
use crate::terminal_text::readable;

/// A machine with files.
pub(crate) struct FileHost {
    pub(crate) files: Box<dyn ExecutorFileSystem>,
    client: Option<ExecServerClient>,
    /// What its server can do. None: this machine, which can do everything.
    server: Option<Capabilities>,
    /// Where relative paths begin. None: its server does not say.
    base: Option<PathBuf>,
}

impl FileHost {
    /// Whether it is out of reach at this moment.
    pub(crate) fn is_lost(&self) -> bool {
        let state = self.client.as_ref().map(ExecServerClient::connection_state);
        state.is_some_and(|state| matches!(*state.borrow(), ConnectionState::Recovering(_)))
    }

    /// Whether modes and times can be read and set. A server that cannot do both does neither.
    pub(crate) fn has_modes(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.fs_set_metadata)
    }

    /// Whether links can be read and made.
    pub(crate) fn has_links(&self) -> bool {
        self.server.as_ref().is_none_or(|server| server.fs_links)
    }
}

/// A path on a machine.
#[derive(Clone)]
pub(crate) struct HostPath {
    pub(crate) host: Arc<FileHost>,
    pub(crate) path: PathBuf,
    /// As it was typed.
    pub(crate) shown: PathBuf,
}

impl HostPath {
    /// As it travels.
    pub(crate) fn uri(&self) -> Result<PathUri, FileSystemError> {
        PathUri::from_native(&self.path)
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not absolute").into())
    }

    /// Something in it.
    pub(crate) fn join(&self, name: &OsStr) -> Self {
        Self { host: Arc::clone(&self.host), path: self.path.join(name), shown: self.shown.join(name) }
    }

    /// The same place by a path without links. It must exist.
    pub(crate) async fn without_links(&self) -> Result<Self, FileSystemError> {
        let path = self.host.files.canonicalize(&self.uri()?, None).await?.to_native();
        let path = path.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        Ok(Self { path, ..self.clone() })
    }

    /// Whether it was typed as what is in a directory, not as the directory itself.
    pub(crate) fn means_contents(&self) -> bool {
        let typed = self.shown.as_os_str().as_bytes();
        let last = typed.rsplit(|byte| matches!(byte, b'/' | b':')).next().unwrap_or_default();
        matches!(last, b"." | b"..") || self.path.file_name().is_none()
    }

    /// Whether nothing was typed behind the colon, which stands for the directory that commands run in.
    pub(crate) fn is_left_out(&self) -> bool {
        self.shown.as_os_str().as_bytes().ends_with(b":")
    }

    /// Whether it was typed as a directory.
    pub(crate) fn means_directory(&self) -> bool {
        self.shown.as_os_str().as_bytes().ends_with(b"/")
    }

    /// The names in it; here, however many there are.
    pub(crate) async fn names(&self) -> Result<Vec<OsString>, FileSystemError> {
        if self.host.client.is_none() {
            let path = self.path.clone();
            let listed = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<OsString>> {
                std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
            });
            return Ok(listed.await.map_err(std::io::Error::from)??);
        }
        names_of(self.host.files.read_directory_with_links(&self.uri()?, None).await?)
    }

    /// A sentence about it.
    pub(crate) fn complaint(&self, what: &str, error: &FileSystemError) -> String {
        format!("cannot {what} {self}: {}", error.words())
    }
}

impl std::fmt::Display for HostPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&readable(&self.shown.to_string_lossy()))
    }
}

/// Names as a server tells them. One that is no single name, or comes twice, could lead a copy out of its target: the second time
/// through a link that was made the first time.
fn names_of(entries: Vec<DirectoryEntry>) -> Result<Vec<OsString>, FileSystemError> {
    let mut names = BTreeSet::new();
    for entry in entries {
        let exact = entry.path.and_then(|path| path.to_native().ok());
        let name = exact.as_deref().and_then(Path::file_name).map_or_else(|| entry.file_name.into(), OsStr::to_owned);
        if Path::new(&name).file_name() != Some(&name) || !names.insert(name) {
            let text = "exec-server protocol error: it has a name that cannot be in a directory";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text).into());
        }
    }
    Ok(names.into_iter().collect())
}

/// Which machine a path without a colon is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarePaths {
    /// On this machine, whatever the flags say: `cp` has to name both sides.
    Local,
    /// In the environment that `-e`, `--connect` or `--ssh` chooses. On this machine if none of them is given.
    Chosen,
}

/// The machines that paths have named so far.
pub(crate) struct FileHosts<'a> {
    given: &'a TargetArgs,
    bare: BarePaths,
    here: Arc<FileHost>,
    there: BTreeMap<Option<String>, Arc<FileHost>>,
}

impl<'a> FileHosts<'a> {
    pub(crate) fn new(given: &'a TargetArgs, bare: BarePaths) -> anyhow::Result<Self> {
        let base = std::env::current_dir().context("cannot find out the current directory")?;
        let here =
            Arc::new(FileHost { files: Box::new(LocalFileSystem), client: None, server: None, base: Some(base) });
        Ok(Self { given, bare, here, there: BTreeMap::new() })
    }

    /// What these texts name, in the same order. An error means that nothing was touched: every environment exists before the first one is
    /// connected to, and all of them are connected to before any path is used.
    pub(crate) async fn places(&mut self, texts: &[OsString]) -> anyhow::Result<Vec<HostPath>> {
        let meant = texts.iter().map(|text| self.meaning(text)).collect::<anyhow::Result<Vec<_>>>()?;
        let mut destinations = BTreeMap::new();
        if let Some(flag) = self.given.flag() {
            destinations.insert(None, self.destination(None)?);
            let is_used = meant.iter().any(|meant| matches!(meant, TypedPath::InEnvironment(None, _)));
            anyhow::ensure!(
                is_used,
                "no path is in the environment that {flag} chooses; write :PATH for a path over there"
            );
        }
        for (meant, text) in meant.iter().zip(texts) {
            if let TypedPath::InEnvironment(id, _) = meant {
                let destination = self.destination(*id).map_err(|error| match id {
                    Some(_) => {
                        let text = text.display();
                        error.context(format!("{text} names an environment; write ./{text} for a file here"))
                    }
                    None => error,
                });
                destinations.insert(*id, destination?);
            }
        }
        for (id, destination) in destinations {
            let host = self.connect(destination).await?;
            self.there.insert(id.map(str::to_owned), host);
        }
        let place = |(meant, text): (&TypedPath<'_>, &OsString)| {
            let (host, path) = match meant {
                TypedPath::Plain(path) => (&self.here, path),
                TypedPath::InEnvironment(id, path) => {
                    (self.there.get(&id.map(str::to_owned)).unwrap_or(&self.here), path)
                }
            };
            let path = match &host.base {
                _ if path.is_absolute() => (*path).to_owned(),
                // Joining nothing would leave a slash at the end.
                Some(base) if path.as_os_str().is_empty() => base.clone(),
                Some(base) => base.join(path),
                None => anyhow::bail!(no_directory(path)),
            };
            Ok(HostPath { host: Arc::clone(host), path, shown: PathBuf::from(text) })
        };
        meant.iter().zip(texts).map(place).collect()
    }

    /// What a text names, with a bare path where it belongs.
    fn meaning<'t>(&self, text: &'t OsStr) -> anyhow::Result<TypedPath<'t>> {
        match TypedPath::parse(text) {
            TypedPath::Plain(path) => {
                anyhow::ensure!(!path.as_os_str().is_empty(), "an empty path names nothing");
                let is_there = self.bare == BarePaths::Chosen && self.given.flag().is_some();
                Ok(if is_there { TypedPath::InEnvironment(None, path) } else { TypedPath::Plain(path) })
            }
            there @ TypedPath::InEnvironment(..) => Ok(there),
        }
    }

    fn destination(&self, id: Option<&str>) -> anyhow::Result<Destination> {
        let mut given = self.given.clone();
        if id.is_some() {
            (given.environment, given.connect, given.ssh) = (id.map(str::to_owned), None, None);
        }
        Destination::choose(&given)
    }

    async fn connect(&self, destination: Destination) -> anyhow::Result<Arc<FileHost>> {
        if matches!(destination.way, Way::Local) {
            return Ok(Arc::clone(&self.here));
        }
        let client = destination.connect().await?;
        let info = environment_info(&client).await?;
        let base = info.cwd.and_then(|cwd| cwd.to_native().ok());
        let (files, server) = (Box::new(client.file_system()), Some(info.capabilities));
        Ok(Arc::new(FileHost { files, client: Some(client), server, base }))
    }

    /// Every machine that is not this one.
    pub(crate) fn all(&self) -> Vec<Arc<FileHost>> {
        self.there.values().cloned().collect()
    }

    /// Says goodbye to all of them.
    pub(crate) async fn close(self) {
        for host in self.there.into_values() {
            if let Some(client) = host.client.clone() {
                client.close().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_a_directory_are_refused() {
        let names = |names: &[&str]| {
            let entry = |name: &&str| DirectoryEntry {
                file_name: (*name).to_owned(),
                is_directory: false,
                is_file: true,
                is_symlink: None,
                path: None,
            };
            names_of(names.iter().map(entry).collect())
        };
        assert_eq!(names(&["b", "..a", "a b", ".c", "-"]).unwrap(), ["-", "..a", ".c", "a b", "b"]);
        for bad in ["..", ".", "", "/", "../x", "/etc/passwd", "x/y", "x/", "./x", "x/.", "x/.."] {
            assert!(names(&["good", bad]).is_err(), "{bad}");
        }
        assert!(names(&["twice", "once", "twice"]).is_err());
    }
}
