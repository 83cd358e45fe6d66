//! Whether a message that was refused was a block of an upload. An upload must not be committed without a block that its client has sent,
//! so a message that may have been one counts as one. Knows no sessions: the server decides which uploads that ends.

use std::borrow::Cow;

use serde::Deserialize;

use crate::{Method, sniff_method};

/// What a refused message was to uploads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusedBlock {
    /// It was something else.
    NotABlock,
    /// A block of the upload with this handle.
    BlockOf(String),
    /// Perhaps a block, and of which upload cannot be read.
    MaybeABlock,
}

/// Looks at a message that was refused, or at its beginning if the rest was never kept.
pub fn refused_block(message: &[u8]) -> RefusedBlock {
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
        refused_block(message.as_bytes())
    }

    #[test]
    fn a_block_is_known_by_its_handle_whatever_else_is_wrong_with_it() {
        for message in [
            r#"{"id":1,"method":"fs/writeBlock","params":{"handleId":"u","offset":-1}}"#,
            r#"{"params":{"offset":1,"offset":2,"handleId":"u"},"method":"fs\/writeBlock"}"#,
        ] {
            assert_eq!(classify(message), RefusedBlock::BlockOf("u".to_owned()), "{message}");
        }
    }

    #[test]
    fn what_cannot_be_read_may_have_been_a_block() {
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
    fn another_method_is_no_block_even_if_its_params_are_broken() {
        for message in [
            r#"{"id":1,"method":"fs/readFile","params":{"path":"/a"#,
            r#" { "jsonrpc" : "2.0" , "method" : "fs/readFile" , "params":]"#,
        ] {
            assert_eq!(classify(message), RefusedBlock::NotABlock, "{message}");
        }
    }
}
