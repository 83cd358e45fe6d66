//! The error texts for params and members of the envelope that do not decode. The published protocol, that of `codex
//! exec-server`, fixes these texts. They are those of serde with two differences: they have no line and column, and
//! they do not repeat a number that has the wrong type or range. This file is used only after decoding has failed, so
//! that decoding stays fast.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Numeric types of Rust, as the texts of serde name them.
const NUMBER_TYPES: [&str; 12] =
    ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "f32", "f64"];

/// The published text for `error`, which is the error of decoding `text` as a `T`.
pub(super) fn published_text<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    // Decoding from a `Value` finds the same error, but without a position in the text.
    match serde_json::from_str::<Value>(text).map(serde_json::from_value::<T>) {
        Ok(Err(error)) => without_number(error.to_string()),
        _ => without_number(without_position(error)),
    }
}

fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

/// Replaces a text that repeats a number of the wrong type or range by one that does not.
fn without_number(text: String) -> String {
    let Some((found, expected)) = text.split_once("`, expected ") else { return text };
    let is_number = |start: &str| found.strip_prefix(start).is_some_and(|number| number.parse::<f64>().is_ok());
    let is_wrong_type = is_number("invalid type: integer `") || is_number("invalid type: floating point `");
    if NUMBER_TYPES.contains(&expected) && (is_wrong_type || is_number("invalid value: integer `")) {
        "invalid number".to_owned()
    } else if is_wrong_type {
        format!("invalid type: number, expected {expected}")
    } else {
        text
    }
}
