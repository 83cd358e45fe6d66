//! Params of a request, decoded once the method is known.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::WireError;

/// Decodes params. Missing params are null, and `{}` also serves a method that takes none.
pub fn decode_params<T: DeserializeOwned>(params: Option<&RawValue>) -> Result<T, WireError> {
    let text = params.map_or("null", RawValue::get);
    // Serde would read the members of a struct from a list too; the protocol has no params by position.
    if text.starts_with('[') {
        return Err(WireError::invalid_params("invalid type: sequence, expected an object"));
    }
    serde_json::from_str(text).or_else(|error| {
        if is_empty_object(text)
            && let Ok(value) = serde_json::from_str("null")
        {
            return Ok(value);
        }
        Err(WireError::invalid_params(error.to_string()))
    })
}

fn is_empty_object(text: &str) -> bool {
    text.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|inner| inner.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ReadParams, WriteParams};

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn a_method_without_params_takes_nothing_null_or_an_empty_object_only() {
        assert_eq!(decode_params::<()>(None), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw("null"))), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw("{ }"))), Ok(()));
        assert_eq!(decode_params::<()>(Some(&raw(r#"{"a":1}"#))).unwrap_err().code, -32602);
    }

    #[test]
    fn params_have_names() {
        let error = decode_params::<crate::KeepParams>(Some(&raw("[1]"))).unwrap_err();
        assert_eq!(error.code, -32602);
    }

    #[test]
    fn says_which_field_is_missing() {
        let error = decode_params::<ReadParams>(Some(&raw("{}"))).unwrap_err();
        assert!(error.message.starts_with("missing field `processId`"), "{}", error.message);
        let error = decode_params::<WriteParams>(Some(&raw(r#"{"processId":"p"}"#))).unwrap_err();
        assert!(error.message.starts_with("missing field `chunk`"), "{}", error.message);
    }
}
