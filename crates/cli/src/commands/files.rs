//! Commands about files of this machine and of environments, which are machines with an exec-server. The commands use
//! one interface for the files of every machine. [`file_hosts`] connects to the machines.

pub(crate) mod args;
pub(crate) mod cat;
mod copy_file;
mod copy_tree;
pub(crate) mod cp;
mod file_hosts;
mod file_kind;
mod host_path;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod rm;
mod same_directory;
