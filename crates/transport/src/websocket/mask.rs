//! The XOR that clients put over every payload. It runs over each byte that arrives, so it goes a word at a time.

/// Masks or unmasks `data`, which begins `offset` bytes into the payload.
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
        fn equals_the_definition_at_every_offset(data: Vec<u8>, key: [u8; 4], offset in 0usize..100) {
            let expected: Vec<u8> = data.iter().enumerate().map(|(i, byte)| byte ^ key[(offset + i) % 4]).collect();
            let mut masked = data;
            apply_mask(&mut masked, key, offset);
            prop_assert_eq!(masked, expected);
        }
    }
}
