//! Commands about files, here and in environments. They work on whatever has a file system; only [`file_hosts`] knows where that is.

pub(crate) mod args;
pub(crate) mod cat;
mod copy_file;
mod copy_tree;
pub(crate) mod cp;
mod file_hosts;
mod file_kind;
pub(crate) mod ls;
pub(crate) mod mkdir;
pub(crate) mod rm;
mod same_directory;
