//! Decides whether a message that the server refused was a block of an upload.
//!
//! An upload must not be committed if it lacks a block that its client has sent. Therefore a message that may have been a block
//! counts as one. This file does not know which uploads exist: the server decides which uploads have failed.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{Method, sniff_method};

/// Whether a refused message was a block of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedBlock {
    /// The message was another request or a notification.
    NotABlock,
    /// The message was a block of the upload with this handle.
    BlockOf(String),
    /// The message may have been a block, of an upload that cannot be determined.
    MaybeABlock,
}

/// Decides whether a refused message was a block. `message` may be only its beginning, if the rest was discarded.
pub fn classify_refused_message(message: &[u8]) -> RefusedBlock {
    let is_block = |method: &str| method == Method::FsWriteBlock.name();
    if sniff_method(message).is_some_and(|method| !is_block(&method)) {
        return RefusedBlock::NotABlock;
    }
    match serde_json::from_slice::<WriteBlockEnvelope<'_>>(message) {
        Ok(envelope) if is_block(&envelope.method) => RefusedBlock::BlockOf(envelope.params.handle_id),
        _ => RefusedBlock::MaybeABlock,
    }
}

#[derive(Deserialize)]
struct WriteBlockEnvelope<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    params: WriteBlockHandle,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WriteBlockHandle {
    handle_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(message: &str) -> RefusedBlock {
        classify_refused_message(message.as_bytes())
    }

    #[test]
    fn a_malformed_block_is_assigned_to_the_upload_of_its_handle() {
        for message in [
            r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"u","offset":-1}}"#,
            r#"{"params":{"offset":1,"offset":2,"handleId":"u"},"method":"fs\/writeBlock"}"#,
        ] {
            assert_eq!(classify(message), RefusedBlock::BlockOf("u".to_owned()), "{message}");
        }
    }

    #[test]
    fn an_unreadable_message_may_have_been_a_block() {
        for message in [
            r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"u","chunk":"AAAA"#,
            r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"u","handleId":"v"}}"#,
            r#"{"params":{"path":"/a","#,
            r#"{"id":1,"method":"fs/writeBl"#,
            "[1]",
            "",
        ] {
            assert_eq!(classify(message), RefusedBlock::MaybeABlock, "{message}");
        }
    }

    #[test]
    fn another_method_is_not_a_block_even_with_broken_params() {
        for message in [
            r#"{"id":1,"method":"fs/readFile","params":{"path":"/a"#,
            r#" { "jsonrpc" : "2.0" , "method" : "fs/readFile" , "params":]"#,
        ] {
            assert_eq!(classify(message), RefusedBlock::NotABlock, "{message}");
        }
    }
}
