//! Any bytes as messages that are lines: `RUSTC_BOOTSTRAP=1 cargo fuzz run lines`.
#![no_main]

#[path = "../checks/message_streams.rs"]
#[allow(dead_code, reason = "the target `websocket` uses the other functions")]
mod message_streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| message_streams::check_lines(bytes));
