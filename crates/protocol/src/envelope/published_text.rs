//! The texts of errors about params, as they are published: without a line and a column, which mean nothing to a client that has sent a value and
//! not a text, and without the number where a number is wrong. Only what has failed once comes here, so that decoding itself pays nothing.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Types of numbers, as errors name them.
const NUMBER_TYPES: [&str; 12] =
    ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize", "f32", "f64"];

/// What is wrong with a text that did not decode as `T`, because of `error`.
pub(super) fn published_text<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> String {
    // From a value, the same decoder finds the same fault and names no position.
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
