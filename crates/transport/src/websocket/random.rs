//! Random numbers for masks and handshake keys. They come from the random keys of the standard library's hasher, so
//! drawing a number cannot fail and needs no system call for each frame. The numbers are not meant for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random mask for one frame.
pub(crate) fn mask_key() -> [u8; 4] {
    let [a, b, c, d, ..] = random_u64().to_ne_bytes();
    [a, b, c, d]
}

/// A random number: the hash of no bytes. It differs each time, because each new hasher has other keys.
pub(super) fn random_u64() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_numbers_differ() {
        let drawn: std::collections::HashSet<u64> = (0..1000).map(|_| random_u64()).collect();
        assert_eq!(drawn.len(), 1000);
    }
}
