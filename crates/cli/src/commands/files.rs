//! Commands about files, here and in environments. They work on whatever has a file system; only [`place`] knows where that is.

pub(crate) mod args;
pub(crate) mod cat;
mod copy_file;
pub(crate) mod cp;
mod found;
pub(crate) mod ls;
pub(crate) mod mkdir;
mod place;
pub(crate) mod rm;
mod same_directory;
mod tree;
