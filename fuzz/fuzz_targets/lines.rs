//! Takes any bytes as a stream in which each line is a message. Run it with `RUSTC_BOOTSTRAP=1 cargo fuzz run lines`.
#![no_main]

#[path = "../checks/message_streams.rs"]
#[allow(dead_code, reason = "the target `websocket` uses the other functions")]
mod message_streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| message_streams::check_lines(bytes));
