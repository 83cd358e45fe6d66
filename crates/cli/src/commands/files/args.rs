//! What the commands about files take.

use std::ffi::OsString;

use clap::Args;

use super::super::args::TargetArgs;

pub(crate) const CP_HELP: &str = "\
A path is ENV:PATH for an environment of environments.toml, :PATH for the one that -e, --connect or --ssh chooses, \
and anything else is here; write ./a:b for a file with a colon. Relative paths over there are meant from the directory \
of its server.

Modification times are kept, holes stay holes, links in trees stay links. A new file gets the mode of its source less \
what the umask takes, and one that is replaced keeps its own; -p gives both exactly the mode of the source. No file gets \
set-user-ID and set-group-ID bits, because the copy may have another owner.

Examples:
  exec-server cp -r src build:/srv/app
  exec-server cp --connect ws://10.0.0.5:7000 :/var/log/app.log .
  exec-server cp staging:db.dump production:";

pub(crate) const LS_HELP: &str = "\
A path is ENV:PATH for an environment of environments.toml, or :PATH for the one that is chosen. With -e, --connect \
or --ssh a path without a colon is over there too, otherwise it is here. Times are UTC.

Examples:
  exec-server ls -l build:/srv/app
  exec-server ls --ssh build-host";

pub(crate) const CAT_HELP: &str = "\
A path is ENV:PATH for an environment of environments.toml, or :PATH for the one that is chosen. With -e, --connect \
or --ssh a path without a colon is over there too, otherwise it is here.

Example:
  exec-server cat build:/etc/os-release";

pub(crate) const RM_HELP: &str = "\
A path is ENV:PATH for an environment of environments.toml, or :PATH for the one that is chosen. With -e, --connect \
or --ssh a path without a colon is over there too, otherwise it is here.

Example:
  exec-server rm -r build:/srv/app/target";

pub(crate) const MKDIR_HELP: &str = "\
A path is ENV:PATH for an environment of environments.toml, or :PATH for the one that is chosen. With -e, --connect \
or --ssh a path without a colon is over there too, otherwise it is here.

Example:
  exec-server mkdir -p build:/srv/app/logs";

#[derive(Args, Debug)]
pub(crate) struct CpArgs {
    /// Copy directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Keep modes exactly, whatever the umask says, except the set-user-ID and set-group-ID bits of files
    #[arg(short, long)]
    pub(crate) preserve: bool,
    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// What to copy, and last where to
    #[arg(required = true, num_args = 2.., value_names = ["SRC", "DST"])]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// With mode, size and time
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Also names that begin with a dot
    #[arg(short, long)]
    pub(crate) all: bool,
    /// What to list
    #[arg(default_value = ":", value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CatArgs {
    /// What to print
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    /// Directories with everything in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// What is not there is fine
    #[arg(short, long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Args, Debug)]
pub(crate) struct MkdirArgs {
    /// With those above it, and no matter whether it is there
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// What to make
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}
