//! The plan of a sandbox: which mounts make its file tree, and which network it has. A plan is made from a policy by
//! the module `planner`, travels to the launcher as a message, and is carried out there. This module has only values.

use std::path::PathBuf;

use crate::codec::{MalformedMessage, MessageReader, MessageWriter};
use crate::file_id::FileId;

/// The whole set-up of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SandboxPlan {
    /// The file tree before the mounts are added.
    pub base: BaseTree,
    /// Mounts in the order in which they are made. An outer path stands before the paths below it.
    pub mounts: Vec<PlannedMount>,
    /// The network of the commands.
    pub network: SandboxNetwork,
}

/// The file tree that a sandbox begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BaseTree {
    /// All files of the host, read-only.
    ReadOnlyHost,
    /// All files of the host. Files of the kernel, as in `/sys`, are read-only all the same.
    WritableHost,
    /// No files. The mounts add directories, links and files.
    Empty,
}

/// The network of the commands in a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SandboxNetwork {
    /// The network of the host.
    Host,
    /// A network namespace without interfaces. Only Unix sockets can be made.
    None,
    /// A network namespace with only the loopback interface, on which the server listens.
    LoopbackOnly,
}

/// One step that makes the file tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedMount {
    /// Absolute path on the host and in the sandbox. It contains no symbolic link, except that the last component may
    /// be one for [`MountKind::PinnedLink`].
    pub path: PathBuf,
    /// What is put at the path.
    pub kind: MountKind,
    /// The host's file or directory that was at the path when the plan was made, for the kinds that mount it or cover it. When
    /// another file has taken its place, the plan is out of date: the kernel has removed the mounts from the old one.
    pub source: Option<FileId>,
}

/// What a step puts at its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MountKind {
    /// The host's directory or file, writable, with everything below it.
    Writable,
    /// The host's directory or file, read-only, with everything below it.
    ReadOnly,
    /// The host's symbolic link. Mounting it on itself prevents that it is removed, renamed or replaced.
    PinnedLink,
    /// An empty directory that may be neither read nor entered.
    DeniedDirectory,
    /// An empty file that may be neither read nor written.
    DeniedFile,
    /// A directory that may not be listed, but through which the paths of later steps are reached.
    PassableDirectory,
    /// A directory in memory that may not be listed, as a place for later steps. Only below an [`BaseTree::Empty`] root, a [`Self::PassableDirectory`] or `/dev`.
    MadeDirectory,
    /// An empty file in memory, as a place for a later step. Where it can be made: see above.
    MadeFile,
    /// A symbolic link in memory, with this target. Where it can be made: see above.
    MadeLink(PathBuf),
}

impl SandboxPlan {
    pub(crate) fn write(&self, message: &mut MessageWriter) {
        message.byte(match self.base {
            BaseTree::ReadOnlyHost => 0,
            BaseTree::WritableHost => 1,
            BaseTree::Empty => 2,
        });
        message.byte(match self.network {
            SandboxNetwork::Host => 0,
            SandboxNetwork::None => 1,
            SandboxNetwork::LoopbackOnly => 2,
        });
        message.list(&self.mounts, |message, mount| {
            message.path(&mount.path);
            message.byte(mount.kind.number());
            if let MountKind::MadeLink(target) = &mount.kind {
                message.path(target);
            }
            message.option(mount.source, |message, source| source.write(message));
        });
    }

    pub(crate) fn read(message: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        let base = match message.byte()? {
            0 => BaseTree::ReadOnlyHost,
            1 => BaseTree::WritableHost,
            2 => BaseTree::Empty,
            _ => return Err(MalformedMessage),
        };
        let network = match message.byte()? {
            0 => SandboxNetwork::Host,
            1 => SandboxNetwork::None,
            2 => SandboxNetwork::LoopbackOnly,
            _ => return Err(MalformedMessage),
        };
        let mounts = message.list(|message| {
            let path = message.path()?;
            if !path.is_absolute() {
                return Err(MalformedMessage);
            }
            let kind = MountKind::read(message)?;
            let source = message.option(FileId::read)?;
            Ok(PlannedMount { path, kind, source })
        })?;
        Ok(Self { base, mounts, network })
    }
}

impl MountKind {
    fn number(&self) -> u8 {
        match self {
            Self::Writable => 0,
            Self::ReadOnly => 1,
            Self::PinnedLink => 2,
            Self::DeniedDirectory => 3,
            Self::DeniedFile => 4,
            Self::PassableDirectory => 5,
            Self::MadeDirectory => 6,
            Self::MadeFile => 7,
            Self::MadeLink(_) => 8,
        }
    }

    fn read(message: &mut MessageReader<'_>) -> Result<Self, MalformedMessage> {
        Ok(match message.byte()? {
            0 => Self::Writable,
            1 => Self::ReadOnly,
            2 => Self::PinnedLink,
            3 => Self::DeniedDirectory,
            4 => Self::DeniedFile,
            5 => Self::PassableDirectory,
            6 => Self::MadeDirectory,
            7 => Self::MadeFile,
            8 => Self::MadeLink(message.path()?),
            _ => return Err(MalformedMessage),
        })
    }
}
