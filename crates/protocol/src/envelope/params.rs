//! Decodes the params of a request once the method is known. The server checks whether the values make sense.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::published_text::published_text;
use crate::WireError;

/// Decodes params. Absent params count as `null`, and a method without params accepts `{}` too. Any failure is an
/// [`ErrorCode::InvalidParams`](crate::ErrorCode::InvalidParams) with the text of the published protocol.
pub fn decode_params<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, WireError> {
    let text = params.map_or("null", RawValue::get);
    // Serde would also fill the members of a struct from an array, but the protocol has no params by position.
    if text.starts_with('[') {
        let expected = if serde_json::from_str::<T>("null").is_ok() { "unit" } else { "an object" };
        return Err(WireError::invalid_params(format!("invalid type: sequence, expected {expected}")));
    }
    serde_json::from_str(text).or_else(|error| {
        if is_empty_object(text)
            && let Ok(value) = serde_json::from_str("null")
        {
            return Ok(value);
        }
        Err(WireError::invalid_params(published_text::<T>(text, &error)))
    })
}

fn is_empty_object(text: &str) -> bool {
    text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|inner| inner.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigReadParams, DiscoverParams, ReadParams, SignalParams, WriteParams, fs::FileParams};

    fn raw_value(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_method_without_params_accepts_only_absent_null_or_empty_params() {
        assert_eq!(decode_params::<()>(None), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw_value("null"))), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw_value("{ }"))), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw_value(r#"{"a":1}"#))).unwrap_err().code, -32602);
    }

    #[test]
    fn params_by_position_are_refused() {
        let error = decode_params::<crate::SessionKeepParams>(Some(&raw_value("[1]"))).unwrap_err();
        assert_eq!(error.code, -32602);
    }

    fn refusal<T: DeserializeOwned + std::fmt::Debug>(params: Option<&str>) -> String {
        let raw = params.map(raw_value);
        let error = decode_params::<T>(raw.as_deref()).unwrap_err();
        assert_eq!(error.code, -32602);
        error.message
    }

    #[test]
    fn invalid_params_are_refused_with_the_published_texts() {
        assert_eq!(refusal::<ReadParams>(Some("{}")), "missing field `processId`");
        assert_eq!(refusal::<WriteParams>(Some(r#"{"processId":"p"}"#)), "missing field `chunk`");
        for nothing in [None, Some("null")] {
            assert_eq!(refusal::<SignalParams>(nothing), "invalid type: null, expected struct SignalParams");
            let expected = "invalid type: null, expected struct CapabilityRootsDiscoverParams";
            assert_eq!(refusal::<DiscoverParams>(nothing), expected);
        }
        assert_eq!(refusal::<FileParams>(Some("7")), "invalid type: number, expected struct FsReadFileParams");
        assert_eq!(refusal::<FileParams>(Some("7.5")), "invalid type: number, expected struct FsReadFileParams");
        assert_eq!(
            refusal::<ConfigReadParams>(Some(r#""x""#)),
            r#"invalid type: string "x", expected struct EnvironmentConfigReadParams"#
        );
        assert_eq!(refusal::<()>(Some("5")), "invalid type: number, expected unit");
        assert_eq!(refusal::<()>(Some(r#"{"a":1}"#)), "invalid type: map, expected unit");
        assert_eq!(refusal::<()>(Some("[]")), "invalid type: sequence, expected unit");
        for (member, text) in [
            (r#""processId":5"#, "invalid type: number, expected a string"),
            (r#""processId":"p","afterSeq":-1"#, "invalid number"),
            (r#""processId":"p","afterSeq":1.5"#, "invalid number"),
            (r#""processId":"p","afterSeq":18446744073709551616"#, "invalid number"),
            (r#""processId":"p","afterSeq":1e400"#, "number out of range"),
            (r#""processId":"p","afterSeq":"x""#, r#"invalid type: string "x", expected u64"#),
            (r#""processId":"p","afterSeq":true"#, "invalid type: boolean `true`, expected u64"),
            // No error: the id is valid, although it looks like the text of an error.
            (r#""processId":"integer `5`, expected u64""#, ""),
        ] {
            let params = format!("{{{member}}}");
            let decoded = decode_params::<ReadParams>(Some(&raw_value(&params)));
            assert_eq!(decoded.err().map(|error| error.message).unwrap_or_default(), text, "{params}");
        }
        for (signal, text) in [
            ("5", "invalid type: number, expected string or map"),
            (
                r#""SIGINT""#,
                "unknown variant `SIGINT`, expected one of `interrupt`, `hangup`, `quit`, `terminate`, `kill`, `user1`, `user2`, `stop`, `continue`",
            ),
        ] {
            assert_eq!(refusal::<SignalParams>(Some(&format!(r#"{{"processId":"p","signal":{signal}}}"#))), text);
        }
        for (chunk, text) in [
            ("aGk", "Invalid padding"),
            ("a-_=", "Invalid symbol 45, offset 1."),
            ("!", "Invalid symbol 33, offset 0."),
        ] {
            assert_eq!(refusal::<WriteParams>(Some(&format!(r#"{{"processId":"p","chunk":"{chunk}"}}"#))), text);
        }
        for (path, text) in [
            ("/etc/hosts", "invalid URI: relative URL without a base"),
            ("http://h/x", "unsupported path URI scheme `http`"),
            ("file:///a?q", "query parameters are not allowed in path URIs"),
            ("file:///a#f", "fragments are not allowed in path URIs"),
            ("file:///a%00b", "'file:///a%00b' is invalid on 'linux'"),
        ] {
            assert_eq!(refusal::<FileParams>(Some(&format!(r#"{{"path":"{path}"}}"#))), text);
        }
    }
}
