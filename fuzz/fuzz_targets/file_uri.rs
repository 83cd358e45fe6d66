//! Takes any bytes as a `file:` URI and as a native path. Run it with `RUSTC_BOOTSTRAP=1 cargo fuzz run file_uri`.
#![no_main]

#[path = "../checks/file_uri.rs"]
mod file_uri;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| file_uri::check(bytes));
