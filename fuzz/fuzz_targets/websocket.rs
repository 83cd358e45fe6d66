//! Takes any bytes as WebSocket frames that a server or a client receives. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run websocket`.
#![no_main]

#[path = "../checks/message_streams.rs"]
#[allow(dead_code, reason = "the target `lines` uses the other functions")]
mod message_streams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| message_streams::check_websocket(bytes));
