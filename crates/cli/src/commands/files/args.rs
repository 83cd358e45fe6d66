//! The arguments of the commands about files. Each command has a field `target`: the flags that choose the
//! environment (the machine with an exec-server) whose files the command uses. In `cp` this is not the
//! target of the copy.

use std::ffi::OsString;

use clap::Args;

use super::super::args::TargetArgs;
use super::super::sandbox_flags::SandboxArgs;

#[derive(Args, Debug)]
pub(crate) struct CpArgs {
    /// Copy directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep modes, whatever the umask is, except the set-user-ID and set-group-ID bits of files
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// The files to copy, and last the target
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    // The flags that choose the environment, not the target of the copy.
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Print mode, size and time too
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List names that begin with a dot too
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Files and directories to list
    // `:` is the working directory of the server in the environment that `target` chooses.
    #[arg(default_value = ":", value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// Files to print
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Remove directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Files to remove
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// Make missing parents too, and accept a directory that exists
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Directories to make
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) sandbox: SandboxArgs,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}
