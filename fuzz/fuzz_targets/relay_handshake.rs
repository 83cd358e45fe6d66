//! Takes any bytes as a message of the Noise handshake, and alters valid ones. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run relay_handshake`.
#![no_main]

#[path = "../checks/relay_handshake.rs"]
mod relay_handshake;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| relay_handshake::check(bytes));
