//! Scenarios with real processes. They need what every Debian has: `sh`, `bash`, `perl-base`, `coreutils`, `util-linux`.

mod families;
mod guard;
mod hanging_start;
mod leaks;
mod namespaces;
mod pipes;
mod preloaded;
mod privileges;
mod programs;
mod roles;
mod support;
mod surroundings;
mod terminal;
mod trees;
