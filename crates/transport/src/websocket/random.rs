//! Unpredictable bits for masks and handshake keys. They come from the standard library's hasher seed, which costs no system
//! call per frame and cannot fail; nothing secret depends on them.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A fresh key for one frame.
pub(crate) fn mask_key() -> [u8; 4] {
    let [a, b, c, d, ..] = random_u64().to_ne_bytes();
    [a, b, c, d]
}

/// Each new hasher has other keys, so each empty hash is another number.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ() {
        let drawn: std::collections::HashSet<u64> = (0..1000).map(|_| random_u64()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
