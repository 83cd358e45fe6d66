//! Commands about files of this machine and of environments. They work on any file system; only [`file_hosts`] knows on which machine it is.

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
