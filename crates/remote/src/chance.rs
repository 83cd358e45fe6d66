//! The random part of waits, so that many ends do not retry at the same moment.

use recovery::Chance;

/// A random number. It is taken from a UUID, so that no other source of randomness is needed.
pub(crate) fn chance() -> Chance {
    let bits = uuid::Uuid::new_v4().as_u64_pair().0 >> 16;
    Chance::new(bits as f64 / (1_u64 << 48) as f64)
}
