//! Tests of the operations on real files, one module for each topic. They need `sh`, `find`, `unshare` and, unless
//! they run as root, `su`, which every Debian system has.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

mod blocks;
mod cached;
mod copying;
mod directories;
mod links;
mod listing;
mod metadata;
mod model;
mod mounts;
mod privileges;
mod races;
mod reading;
mod removing;
mod renaming;
mod roles;
mod support;
mod uploading;
mod walking;
mod writing;
