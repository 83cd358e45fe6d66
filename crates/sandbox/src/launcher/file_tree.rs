//! Makes the file tree of a sandbox from its plan, and makes it the root directory of this process. The tree is built
//! on `/proc` of the new mount namespace, because the new tree needs nothing from there.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};

use super::device_files;
use super::failure;
use super::kernel_files;
use super::mount_calls::{MountDepth, MountFlags, add_flags, attach, clone_mount, new_file_system, open_path};
use crate::file_id::{FileFacts, FileId};
use crate::message::{BuildFailure, BuildStep};
use crate::mount_table;
use crate::mounted;
use crate::plan::{BaseTree, MountKind, PlannedMount, SandboxPlan};

/// The directory on which the new tree is built.
const BUILDING_SITE: &str = "/proc";

/// Flags of every mount of the host's files: programs with the set-user-ID bit get no privileges, and device files do
/// not work.
const COMMON_FLAGS: MountFlags = MountFlags::NO_SETUID.and(MountFlags::NO_DEVICES);

/// The size limit of a file system in memory that only holds places for mounts: empty directories, empty files and links.
const PLACES_BYTES: &str = "4m";

/// Mode of directories that may be passed through but not listed.
const PASSABLE: Mode = Mode::from_raw_mode(0o111);

/// The tree that this process has entered.
pub(super) struct EnteredTree {
    /// Whether commands can mount a `/proc` of their own.
    pub(super) has_proc: bool,
    /// The list of the mounts of the tree. It has not changed since all mounts of the plan were found in their places.
    pub(super) mount_table: OwnedFd,
}

/// Makes the tree and enters it.
pub(super) fn build(plan: &SandboxPlan) -> Result<EnteredTree, BuildFailure> {
    let base = |error: Errno| failure(BuildStep::BaseTree, error.into(), "");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).map_err(base)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let host = openat(CWD, "/", flags, Mode::empty()).map_err(base)?;
    // Opened before the new tree covers it.
    let mount_table = mount_table::open().map_err(base)?;
    let root = attach_base(plan.base, &host).map_err(base)?;
    let about_devices = |error: Errno| failure(BuildStep::DeviceFiles, error.into(), "");
    let devices = device_files::attach(&host, &root, plan.base).map_err(about_devices)?;
    let tree = FileTree {
        host,
        root,
        denied_file: devices.denied_file,
        denied_directory: devices.denied_directory,
        places: RefCell::default(),
    };
    for mount in &plan.mounts {
        tree.apply(mount)
            .map_err(|error| failure(BuildStep::Mount, error.into(), mount.path.display().to_string()))?;
    }
    let about_mounts = |error: Errno| failure(BuildStep::Mount, error.into(), "/");
    tree.close_places().map_err(about_mounts)?;
    kernel_files::make_read_only(&mount_table, &tree.root, Path::new(BUILDING_SITE))
        .map_err(|(error, path)| failure(BuildStep::Mount, error.into(), path.display().to_string()))?;
    device_files::finish(&devices.dev).map_err(about_devices)?;
    if plan.base == BaseTree::Empty {
        add_flags(&tree.root, MountFlags::READ_ONLY, MountDepth::Single).map_err(base)?;
    }
    enter(&tree.root).map_err(|error| failure(BuildStep::ChangeRoot, error.into(), ""))?;
    // Forgets the changes that this function has made.
    mount_table::has_changed(&mount_table);
    if let Some(missing) = mounted::first_missing(&tree.root, plan) {
        let path = missing.path.display().to_string();
        return Err(failure(BuildStep::Mount, Errno::STALE.into(), path));
    }
    Ok(EnteredTree { has_proc: devices.has_proc, mount_table: mount_table.into() })
}

/// Attaches the base of the tree at the building site, and returns a descriptor of its root directory.
fn attach_base(base: BaseTree, host: &OwnedFd) -> Result<OwnedFd, Errno> {
    let tree = match base {
        BaseTree::ReadOnlyHost => {
            let tree = clone_mount(host, MountDepth::Recursive)?;
            add_flags(&tree, COMMON_FLAGS.and(MountFlags::READ_ONLY), MountDepth::Recursive)?;
            tree
        }
        BaseTree::WritableHost => {
            let tree = clone_mount(host, MountDepth::Recursive)?;
            add_flags(&tree, COMMON_FLAGS, MountDepth::Recursive)?;
            tree
        }
        BaseTree::Empty => places(PASSABLE)?,
    };
    attach(&tree, open_path(host, Path::new(BUILDING_SITE))?)?;
    open_path(host, Path::new(BUILDING_SITE))
}

/// A file system in memory for places at which later steps mount something.
fn places(mode: Mode) -> Result<OwnedFd, Errno> {
    let mode = format!("{:o}", mode.as_raw_mode());
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    new_file_system(c"tmpfs", &[(c"mode", &mode), (c"size", PLACES_BYTES)], flags)
}

/// Makes `root` the root directory of this process, and detaches the file tree of the host.
fn enter(root: &OwnedFd) -> Result<(), Errno> {
    rustix::process::fchdir(root)?;
    // The old root is put on top of the new one, and is detached there.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

/// The tree while it is being built.
struct FileTree {
    host: OwnedFd,
    root: OwnedFd,
    /// A file without permissions, which is mounted over files that a command must not read.
    denied_file: OwnedFd,
    /// A directory without permissions, for the same purpose.
    denied_directory: OwnedFd,
    /// File systems in memory that become read-only when all steps are done.
    places: RefCell<Vec<OwnedFd>>,
}

impl FileTree {
    fn apply(&self, mount: &PlannedMount) -> Result<(), Errno> {
        let path = &mount.path;
        match &mount.kind {
            MountKind::Writable => self.bind(path, flags_below(path), mount.source),
            MountKind::ReadOnly => self.bind(path, flags_below(path).and(MountFlags::READ_ONLY), mount.source),
            MountKind::PinnedLink => self.bind(path, MountFlags::NO_SETUID, mount.source),
            MountKind::DeniedDirectory => self.cover(path, &self.denied_directory, mount.source),
            MountKind::DeniedFile => self.cover(path, &self.denied_file, mount.source),
            MountKind::PassableDirectory => {
                self.expect(path, mount.source)?;
                let places = places(PASSABLE)?;
                attach(&places, open_path(&self.root, path)?)?;
                self.places.borrow_mut().push(places);
                Ok(())
            }
            MountKind::MadeDirectory => {
                let (parent, name) = self.place(path)?;
                ignore_existing(mkdirat(parent, name, PASSABLE))
            }
            MountKind::MadeFile => {
                let (parent, name) = self.place(path)?;
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                openat(parent, name, flags, Mode::empty()).map(drop)
            }
            MountKind::MadeLink(target) => {
                let (parent, name) = self.place(path)?;
                ignore_existing(symlinkat(target, parent, name))
            }
            MountKind::HostMount => Ok(()),
        }
    }

    /// Mounts the host's file or directory at the same path of the tree. Fails with `ESTALE` if it is not the one that the plan means.
    fn bind(&self, path: &Path, flags: MountFlags, expected: Option<FileId>) -> Result<(), Errno> {
        let source = self.expect(path, expected)?;
        let mount = clone_mount(source, MountDepth::Recursive)?;
        add_flags(&mount, flags, MountDepth::Recursive)?;
        attach(mount, open_path(&self.root, path)?)
    }

    fn cover(&self, path: &Path, with: &OwnedFd, expected: Option<FileId>) -> Result<(), Errno> {
        let target = match open_path(&self.root, path) {
            // The sandbox does not have most devices anyway.
            Err(Errno::NOENT) if path.starts_with("/dev") => return Ok(()),
            // The path is in a closed directory of another user, so no command can reach it.
            Err(Errno::ACCESS) if !kernel_files::is_behind_own_directory(&self.root, path)? => return Ok(()),
            other => other?,
        };
        self.expect(path, expected)?;
        let mount = clone_mount(with, MountDepth::Single)?;
        add_flags(&mount, MountFlags::READ_ONLY, MountDepth::Single)?;
        attach(mount, target)
    }

    /// The host's file at a path, if it is the one that the plan means.
    fn expect(&self, path: &Path, expected: Option<FileId>) -> Result<OwnedFd, Errno> {
        let file = open_path(&self.host, path)?;
        match expected {
            Some(expected) if FileFacts::of_open(&file)?.id != expected => Err(Errno::STALE),
            _ => Ok(file),
        }
    }

    fn place(&self, path: &Path) -> Result<(OwnedFd, PathBuf), Errno> {
        let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
        Ok((open_path(&self.root, parent)?, name.into()))
    }

    /// A command could change the permissions of directories in memory, because they belong to its user, and then write to them.
    fn close_places(&self) -> Result<(), Errno> {
        self.places
            .borrow()
            .iter()
            .try_for_each(|places| add_flags(places, MountFlags::READ_ONLY, MountDepth::Single))
    }
}

/// An entry of a policy may name a device file on purpose, and it must work then.
fn flags_below(path: &Path) -> MountFlags {
    if path.starts_with("/dev") { MountFlags::NO_SETUID } else { COMMON_FLAGS }
}

fn ignore_existing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}
