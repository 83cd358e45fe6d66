//! Takes any bytes as a JSON-RPC message. Run it with `RUSTC_BOOTSTRAP=1 cargo fuzz run envelope`.
#![no_main]

#[path = "../checks/envelope.rs"]
mod envelope;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| envelope::check(bytes));
