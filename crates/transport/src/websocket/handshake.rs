//! The key in the upgrade request of a client, and the value with which the server answers it. They prove that the
//! server understands WebSocket and that the answer does not come from a cache.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::random::random_u64;

/// The value of `Sec-WebSocket-Accept` that answers a `Sec-WebSocket-Key`.
pub(crate) fn accept_key(key: &[u8]) -> String {
    const PROTOCOL_GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(PROTOCOL_GUID);
    STANDARD.encode(hash.digest().bytes())
}

/// A random `Sec-WebSocket-Key` for one handshake.
pub(crate) fn new_key() -> String {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&random_u64().to_ne_bytes());
    nonce[8..].copy_from_slice(&random_u64().to_ne_bytes());
    STANDARD.encode(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_key_matches_the_example_of_the_rfc() {
        assert_eq!(accept_key(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_is_16_bytes_in_base64() {
        assert_eq!(STANDARD.decode(new_key()).unwrap().len(), 16);
    }
}
