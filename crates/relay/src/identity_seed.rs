//! The secret from which the static keys of an end are made, for a program that keeps its keys over a restart.

use std::fmt;

use clatter::crypto::rng::DefaultRng;
use clatter::rand_core::{CryptoRng, Error, RngCore, impls};
use zeroize::Zeroizing;

use crate::handshake::HandshakeFailure;

/// The secret behind a [`RelayIdentity`](crate::RelayIdentity). The same seed always makes the same keys. It is
/// overwritten when the value is dropped.
#[derive(Clone)]
pub struct IdentitySeed(Zeroizing<[u8; Self::BYTES]>);

impl IdentitySeed {
    /// 32 bytes for X25519, and the two seeds of ML-KEM with 32 bytes each.
    pub const BYTES: usize = 96;

    /// Makes a seed from the randomness of the system.
    pub fn generate() -> Result<Self, HandshakeFailure> {
        let mut seed = Zeroizing::new([0; Self::BYTES]);
        DefaultRng.try_fill_bytes(&mut *seed).map_err(|_| HandshakeFailure::Keys)?;
        Ok(Self(seed))
    }

    /// The seed with these bytes. None if the number of bytes is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// The bytes of the seed, which are as secret as the keys.
    pub fn as_bytes(&self) -> &[u8] {
        &*self.0
    }

    pub(crate) fn randomness(&self) -> SeedRandomness {
        SeedRandomness { seed: self.clone(), used: 0 }
    }
}

/// No secret reaches a log.
impl fmt::Debug for IdentitySeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdentitySeed")
    }
}

/// Hands out the bytes of a seed, each once. The keys of an identity take all of them.
#[derive(Clone)]
pub(crate) struct SeedRandomness {
    seed: IdentitySeed,
    used: usize,
}

/// Not used: `clatter` asks for it, because a handshake makes its own source of randomness.
impl Default for SeedRandomness {
    fn default() -> Self {
        Self { seed: IdentitySeed(Zeroizing::new([0; IdentitySeed::BYTES])), used: IdentitySeed::BYTES }
    }
}

impl RngCore for SeedRandomness {
    fn next_u32(&mut self) -> u32 {
        impls::next_u32_via_fill(self)
    }

    fn next_u64(&mut self) -> u64 {
        impls::next_u64_via_fill(self)
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        let end = self.used + bytes.len();
        assert!(end <= IdentitySeed::BYTES, "the keys of an identity take 96 bytes");
        bytes.copy_from_slice(&self.seed.0[self.used..end]);
        self.used = end;
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for SeedRandomness {}
