//! Any bytes as messages that are lines: `RUSTC_BOOTSTRAP=1 cargo fuzz run lines`.
#![no_main]

#[path = "../checks/message_streams.rs"]
#[allow(dead_code, reason = "the other target uses the rest")]
mod message_streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| message_streams::check_lines(bytes));
