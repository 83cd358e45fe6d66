//! Takes any bytes as a message of a relay. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run relay_frame`.
#![no_main]

#[path = "../checks/relay_frame.rs"]
mod relay_frame;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| relay_frame::check(bytes));
