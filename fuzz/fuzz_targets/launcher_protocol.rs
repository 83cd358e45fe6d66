//! Takes any bytes as a message between the server and the launcher of a sandbox. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run launcher_protocol`.
#![no_main]

#[path = "../checks/launcher_protocol.rs"]
mod launcher_protocol;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| launcher_protocol::check(bytes));
