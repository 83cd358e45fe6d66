//! Operations on real files, one file per topic. They need what every Debian has: `sh`, `find`, `unshare`.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

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
