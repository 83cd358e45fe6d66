//! Tests of operations in the root of a sandbox: nothing leads out of it, its mounts cannot be changed, and errors say
//! when the sandbox has caused them. The tests need `sh`, `mount` and `unshare`, which every Debian system has.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

mod attacks;
mod capabilities;
mod denials;
mod magic_links;
mod mount_points;
mod ordinary_use;
mod ordinary_user;
mod races;
#[path = "../operations/roles.rs"]
#[expect(dead_code, reason = "the tests of operations use more of these functions")]
mod roles;
mod support;
mod watching;
