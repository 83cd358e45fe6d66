//! Real sandboxes, without a server: the tests start the launcher themselves and run commands in it. Each attack is also
//! run without a sandbox, where it must succeed.

#![expect(
    unsafe_code,
    reason = "the launcher gets its socket at a fixed descriptor, which needs a call between fork and exec"
)]
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

mod support;
mod yard;

mod commands;
mod descriptors;
mod filters;
mod landlock;
mod launcher_socket;
mod lifetime;
mod machine;
mod ordinary_user;
mod paths;
mod placeholders;
mod policies;
mod privileges;
mod programs;
mod random_trees;
mod sockets;
