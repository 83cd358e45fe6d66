//! Masks and unmasks payloads with the 4-byte key of a frame. A server unmasks every byte that it receives, so this works on 8 bytes at a
//! time.

/// Masks or unmasks `data`, which is a part of a payload. `offset` is the position of the part in the payload, in
/// bytes.
pub(crate) fn apply_mask(data: &mut [u8], mut key: [u8; 4], offset: usize) {
    key.rotate_left(offset % 4);
    let [a, b, c, d] = key;
    let word = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = data.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key_byte) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key_byte;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masking_matches_the_definition_at_every_offset(data: Vec<u8>, key: [u8; 4], offset in 0usize..100) {
            let expected: Vec<u8> = data.iter().enumerate().map(|(i, byte)| byte ^ key[(offset + i) % 4]).collect();
            let mut masked = data;
            apply_mask(&mut masked, key, offset);
            prop_assert_eq!(masked, expected);
        }
    }
}
