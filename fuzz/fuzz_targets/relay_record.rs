//! Takes any bytes as what a relay does with the frames of a stream. Run it with
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run relay_record`.
#![no_main]

#[path = "../checks/relay_record.rs"]
mod relay_record;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| relay_record::check(bytes));
