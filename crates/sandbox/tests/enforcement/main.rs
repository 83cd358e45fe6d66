//! Real sandboxes, without a server: the tests start the launcher themselves and run commands in it.

#![expect(
    unsafe_code,
    reason = "the launcher gets its socket at a fixed descriptor, which needs a call between fork and exec"
)]

mod support;

mod commands;
