//! Tests of the whole crate with real processes. They need the programs of a minimal Debian: `sh`, `bash`, `grep`,
//! `perl-base`, `coreutils` and `util-linux`. `preloaded` also needs `cc`.

mod guard;
mod hanging_start;
mod leaks;
mod limits;
mod many_trees;
mod namespaces;
mod pipes;
mod preloaded;
mod privileges;
mod programs;
mod roles;
mod shared_host;
mod support;
mod surroundings;
mod terminal;
mod trees;
