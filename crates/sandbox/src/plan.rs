//! The plan of a sandbox of namespaces: which mounts make its file tree, and which network it has. The module `planner`
//! makes a plan from a policy. The plan is sent to the launcher, which carries it out. This module has only values. The
//! other kind of plan, and the enum of both kinds, are in `landlock_plan`.

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
    /// No network: only Unix sockets can be made. With namespaces, the network namespace has only its loopback interface, which is
    /// switched off. With Landlock, only the seccomp filter forbids other sockets.
    None,
    /// A network namespace with only the loopback interface. The launcher opens a listening socket there and passes it to the server.
    LoopbackOnly,
}

/// One step in building the file tree: a mount, or a directory, file or link that is made in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlannedMount {
    /// Absolute path on the host and in the sandbox. It contains no symbolic link, except that the last component may
    /// be one for [`MountKind::PinnedLink`].
    pub path: PathBuf,
    /// What is put at the path.
    pub kind: MountKind,
    /// The host's file or directory that was at the path when the plan was made, for the kinds that mount it or cover it. If another
    /// file is there when the launcher runs, the launcher refuses the plan with `ESTALE`.
    pub source: Option<FileId>,
}

/// What a step puts at its path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MountKind {
    /// The host's directory or file, writable, with everything below it.
    Writable,
    /// The host's directory or file, read-only, with everything below it.
    ReadOnly,
    /// The host's symbolic link. It is mounted on itself, because the kernel does not let a command remove, rename or replace a mount
    /// point.
    PinnedLink,
    /// An empty directory that may be neither read nor entered.
    DeniedDirectory,
    /// An empty file that may be neither read nor written.
    DeniedFile,
    /// A directory in memory that covers the host's directory. It cannot be listed, and only later steps make entries in it.
    PassableDirectory,
    /// A directory in memory that cannot be listed, in which later steps make entries. It can be made only below the root of
    /// [`BaseTree::Empty`], below a [`Self::PassableDirectory`], or in `/dev`.
    MadeDirectory,
    /// An empty file in memory, on which a later step mounts a file. It can be made where [`Self::MadeDirectory`] can be made.
    MadeFile,
    /// A symbolic link in memory, with this target. It can be made where [`Self::MadeDirectory`] can be made.
    MadeLink(PathBuf),
    /// Something that the host has mounted below a writable directory. It comes with that directory, so nothing is done, but the plan
    /// differs from one without it. The source says which mount it is, and is no file.
    HostMount,
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
    /// Whether something is mounted exactly at the path.
    pub(crate) fn is_mounted(&self) -> bool {
        match self {
            Self::Writable
            | Self::ReadOnly
            | Self::PinnedLink
            | Self::DeniedDirectory
            | Self::DeniedFile
            | Self::PassableDirectory => true,
            Self::MadeDirectory | Self::MadeFile | Self::MadeLink(_) | Self::HostMount => false,
        }
    }

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
            Self::HostMount => 9,
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
            9 => Self::HostMount,
            _ => return Err(MalformedMessage),
        })
    }
}
