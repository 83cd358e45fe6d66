//! Takes any bytes as requests about file handles, and as the JSON params of such requests. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run block_protocol`.
#![no_main]

#[path = "../checks/block_protocol.rs"]
mod block_protocol;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| block_protocol::check(bytes));
