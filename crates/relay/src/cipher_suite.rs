//! The algorithms of the Noise channel, as components for `clatter`.
//!
//! AES-GCM and SHA-256 come from aws-lc, which the TLS library brings anyway and which uses the fastest instructions
//! of the processor. X25519 and ML-KEM come from `clatter`, with two checks that it leaves out.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest;
use clatter::KeyPair;
use clatter::bytearray::{ByteArray as _, SensitiveByteArray};
use clatter::crypto::{dh, kem};
use clatter::error::{CipherError, CipherResult, DhError, DhResult, KemError, KemResult};
use clatter::traits::{Cipher, CryptoComponent, Dh, Hash, Kem, Rng};

use crate::limits::TAG_BYTES;

/// The key of a direction, or of a step of the handshake.
pub(crate) type CipherKey = SensitiveByteArray<[u8; 32]>;

/// AES-256-GCM with the nonce of Noise.
#[derive(Clone)]
pub(crate) struct AesGcm;

/// The nonce of Noise for AES-GCM: four zero bytes, and a counter with the highest byte first.
pub(crate) fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// A key with which records can be encrypted and decrypted.
pub(crate) fn record_key(key: &CipherKey) -> CipherResult<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key.as_slice()).map(LessSafeKey::new).map_err(|_| CipherError::MissingKeyMaterial)
}

impl CryptoComponent for AesGcm {
    fn name() -> &'static str {
        "AESGCM"
    }
}

impl Cipher for AesGcm {
    type Key = CipherKey;

    fn tag_len() -> usize {
        TAG_BYTES
    }

    fn encrypt(key: &CipherKey, counter: u64, ad: &[u8], plaintext: &[u8], out: &mut [u8]) -> CipherResult<()> {
        out[..plaintext.len()].copy_from_slice(plaintext);
        Self::encrypt_in_place(key, counter, ad, out, plaintext.len()).map(drop)
    }

    fn encrypt_in_place(
        key: &CipherKey,
        counter: u64,
        ad: &[u8],
        in_out: &mut [u8],
        plaintext_len: usize,
    ) -> CipherResult<usize> {
        let (text, rest) = in_out.split_at_mut(plaintext_len);
        let tag = record_key(key)?
            .seal_in_place_separate_tag(nonce(counter), Aad::from(ad), text)
            .map_err(|_| CipherError::Encrypt)?;
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        Ok(plaintext_len + TAG_BYTES)
    }

    fn decrypt(key: &CipherKey, counter: u64, ad: &[u8], ciphertext: &[u8], out: &mut [u8]) -> CipherResult<()> {
        let (text, tag) = ciphertext.split_at(out.len());
        record_key(key)?
            .open_separate_gather(nonce(counter), Aad::from(ad), text, tag, out)
            .map_err(|_| CipherError::Decrypt)
    }

    fn decrypt_in_place(
        key: &CipherKey,
        counter: u64,
        ad: &[u8],
        in_out: &mut [u8],
        ciphertext_len: usize,
    ) -> CipherResult<usize> {
        record_key(key)?
            .open_in_place(nonce(counter), Aad::from(ad), &mut in_out[..ciphertext_len])
            .map(|plaintext| plaintext.len())
            .map_err(|_| CipherError::Decrypt)
    }
}

/// SHA-256 for the transcript of the handshake.
#[derive(Clone)]
pub(crate) struct Sha256(digest::Context);

impl Default for Sha256 {
    fn default() -> Self {
        Self(digest::Context::new(&digest::SHA256))
    }
}

impl CryptoComponent for Sha256 {
    fn name() -> &'static str {
        "SHA256"
    }
}

impl Hash for Sha256 {
    type Block = [u8; 64];
    type Output = SensitiveByteArray<[u8; 32]>;

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(self) -> Self::Output {
        Self::Output::from_slice(self.0.finish().as_ref())
    }
}

/// X25519 that refuses a shared secret of zeros. A peer can force such a secret with a public key of a small subgroup,
/// and then everybody knows the secret.
#[derive(Clone)]
pub(crate) struct X25519;

impl CryptoComponent for X25519 {
    fn name() -> &'static str {
        dh::X25519::name()
    }
}

impl Dh for X25519 {
    type PrivateKey = <dh::X25519 as Dh>::PrivateKey;
    type PubKey = <dh::X25519 as Dh>::PubKey;
    type Output = <dh::X25519 as Dh>::Output;

    fn genkey_rng<R: Rng>(rng: &mut R) -> DhResult<KeyPair<Self::PubKey, Self::PrivateKey>> {
        dh::X25519::genkey_rng(rng)
    }

    fn pubkey(key: &Self::PrivateKey) -> Self::PubKey {
        dh::X25519::pubkey(key)
    }

    fn dh(key: &Self::PrivateKey, public: &Self::PubKey) -> DhResult<Self::Output> {
        let shared = dh::X25519::dh(key, public)?;
        // All bytes are combined before the comparison, so the time does not depend on which of them is zero.
        let is_zero = shared.as_slice().iter().fold(0, |sum, byte| sum | byte) == 0;
        if is_zero { Err(DhError::KeyGeneration) } else { Ok(shared) }
    }
}

/// ML-KEM-768 that refuses a public key with coefficients that are not below the modulus, as FIPS 203 demands.
#[derive(Clone)]
pub(crate) struct MlKem768;

impl CryptoComponent for MlKem768 {
    fn name() -> &'static str {
        kem::rust_crypto_ml_kem::MlKem768::name()
    }
}

impl Kem for MlKem768 {
    type SecretKey = <kem::rust_crypto_ml_kem::MlKem768 as Kem>::SecretKey;
    type PubKey = <kem::rust_crypto_ml_kem::MlKem768 as Kem>::PubKey;
    type Ct = <kem::rust_crypto_ml_kem::MlKem768 as Kem>::Ct;
    type Ss = <kem::rust_crypto_ml_kem::MlKem768 as Kem>::Ss;

    fn genkey_rng<R: Rng>(rng: &mut R) -> KemResult<KeyPair<Self::PubKey, Self::SecretKey>> {
        kem::rust_crypto_ml_kem::MlKem768::genkey_rng(rng)
    }

    fn encapsulate<R: Rng>(public: &[u8], rng: &mut R) -> KemResult<(Self::Ct, Self::Ss)> {
        if !is_in_field(public) {
            return Err(KemError::Input);
        }
        kem::rust_crypto_ml_kem::MlKem768::encapsulate(public, rng)
    }

    fn decapsulate(ciphertext: &[u8], secret: &[u8]) -> KemResult<Self::Ss> {
        kem::rust_crypto_ml_kem::MlKem768::decapsulate(ciphertext, secret)
    }
}

/// Whether all coefficients of an ML-KEM-768 public key are below the modulus. They come first in the key, with 12 bits each;
/// the last 32 bytes are a seed.
pub(crate) fn is_in_field(public: &[u8]) -> bool {
    const MODULUS: u16 = 3329;
    const SEED_BYTES: usize = 32;
    public.len() > SEED_BYTES
        && public[..public.len() - SEED_BYTES].chunks_exact(3).all(|three| {
            let [a, b, c] = [three[0], three[1], three[2]].map(u16::from);
            (a | (b & 0xf) << 8) < MODULUS && (b >> 4 | c << 4) < MODULUS
        })
}
