//! The static keys of an end, and the public half that registry and peer know it by.

use std::fmt;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use clatter::KeyPair;
use clatter::bytearray::ByteArray as _;
use clatter::crypto::rng::DefaultRng;
use clatter::traits::{Dh, Kem};
use serde::{Deserialize, Serialize};

use crate::cipher_suite::{MlKem768, X25519, is_in_field};
use crate::handshake::HandshakeFailure;
use crate::identity_seed::IdentitySeed;

/// Name of the algorithms in the JSON form of a key. The name that the handshake hashes is another one.
const SUITE: &str = "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256";

/// The public key of an executor or a harness: one key for each of the two algorithms.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "KeyObject", try_from = "KeyObject")]
pub struct RelayPublicKey {
    pub(crate) x25519: [u8; 32],
    pub(crate) mlkem768: Box<[u8; 1184]>,
}

impl RelayPublicKey {
    /// A short text by which people compare keys: a hash of the suite and both keys.
    pub fn fingerprint(&self) -> String {
        let mut hash = digest::Context::new(&digest::SHA256);
        for part in [SUITE.as_bytes(), &self.x25519, &*self.mlkem768] {
            hash.update(part);
        }
        format!("SHA256:{}", STANDARD_NO_PAD.encode(hash.finish()))
    }

    /// None if the second key has another length, or coefficients that are not below the modulus.
    pub(crate) fn from_parts(x25519: [u8; 32], mlkem768: &[u8]) -> Option<Self> {
        is_in_field(mlkem768).then_some(())?;
        Some(Self { x25519, mlkem768: Box::new(mlkem768.try_into().ok()?) })
    }
}

/// The fingerprint instead of 1216 bytes.
impl fmt::Debug for RelayPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayPublicKey({})", self.fingerprint())
    }
}

/// The JSON form of a public key.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyObject {
    suite: String,
    #[serde(with = "crate::base64_bytes")]
    x25519_public_key: [u8; 32],
    #[serde(with = "crate::base64_bytes")]
    mlkem768_public_key: [u8; 1184],
}

impl From<RelayPublicKey> for KeyObject {
    fn from(key: RelayPublicKey) -> Self {
        Self { suite: SUITE.to_owned(), x25519_public_key: key.x25519, mlkem768_public_key: *key.mlkem768 }
    }
}

impl TryFrom<KeyObject> for RelayPublicKey {
    type Error = &'static str;

    fn try_from(object: KeyObject) -> Result<Self, Self::Error> {
        if object.suite != SUITE {
            return Err("the key is for other algorithms than Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256");
        }
        if !is_in_field(&object.mlkem768_public_key) {
            return Err("the ML-KEM key has coefficients that are not below 3329");
        }
        Ok(Self { x25519: object.x25519_public_key, mlkem768: Box::new(object.mlkem768_public_key) })
    }
}

/// The secret and public keys of an end. The secret keys are overwritten when the value is dropped.
#[derive(Clone)]
pub struct RelayIdentity {
    pub(crate) x25519: KeyPair<<X25519 as Dh>::PubKey, <X25519 as Dh>::PrivateKey>,
    pub(crate) mlkem768: KeyPair<<MlKem768 as Kem>::PubKey, <MlKem768 as Kem>::SecretKey>,
}

impl RelayIdentity {
    /// Makes new keys from the randomness of the system.
    pub fn generate() -> Result<Self, HandshakeFailure> {
        Ok(Self {
            x25519: X25519::genkey_rng(&mut DefaultRng).map_err(|_| HandshakeFailure::Keys)?,
            mlkem768: MlKem768::genkey_rng(&mut DefaultRng).map_err(|_| HandshakeFailure::Keys)?,
        })
    }

    /// Makes the keys of a seed.
    pub fn from_seed(seed: &IdentitySeed) -> Result<Self, HandshakeFailure> {
        let mut randomness = seed.randomness();
        Ok(Self {
            x25519: X25519::genkey_rng(&mut randomness).map_err(|_| HandshakeFailure::Keys)?,
            mlkem768: MlKem768::genkey_rng(&mut randomness).map_err(|_| HandshakeFailure::Keys)?,
        })
    }

    /// The public half of the keys.
    pub fn public_key(&self) -> RelayPublicKey {
        let mut mlkem768 = Box::new([0; 1184]);
        mlkem768.copy_from_slice(self.mlkem768.public.as_slice());
        RelayPublicKey { x25519: self.x25519.public, mlkem768 }
    }
}

/// Only the public key: the secret keys must not reach a log.
impl fmt::Debug for RelayIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayIdentity").field("public_key", &self.public_key()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD as BASE64;
    use serde_json::{Value, json};

    use super::*;

    fn key_and_json() -> (RelayPublicKey, Value) {
        let key = RelayIdentity::generate().unwrap().public_key();
        let json = serde_json::to_value(&key).unwrap();
        (key, json)
    }

    #[test]
    fn a_key_in_json_has_the_suite_and_both_keys_in_base64_with_padding() {
        let (key, json) = key_and_json();
        assert_eq!(json["suite"], "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256");
        let lengths = ["x25519_public_key", "mlkem768_public_key"].map(|name| json[name].as_str().unwrap().len());
        assert_eq!((lengths, json.as_object().unwrap().len()), ([44, 1580], 3));
        assert_eq!(serde_json::from_value::<RelayPublicKey>(json).unwrap(), key);
    }

    #[test]
    fn a_key_that_is_not_exactly_right_is_refused() {
        let (_, json) = key_and_json();
        let with = |name: &str, value: Value| {
            let mut changed = json.clone();
            changed[name] = value;
            changed
        };
        let mut missing = json.clone();
        missing.as_object_mut().unwrap().remove("suite");
        let without_padding = json["x25519_public_key"].as_str().unwrap().trim_end_matches('=').to_owned();
        let mut outside = BASE64.decode(json["mlkem768_public_key"].as_str().unwrap()).unwrap();
        outside[..3].copy_from_slice(&[0xff; 3]);
        for wrong in [
            missing,
            with("suite", json!("Noise_hybridIK_25519+MLKEM768_AESGCM_SHA256")),
            with("x25519_public_key", json!(without_padding)),
            with("x25519_public_key", json!("AAAA")),
            with("mlkem768_public_key", json!("!")),
            with("mlkem768_public_key", json!(BASE64.encode(outside))),
            with("more", json!(1)),
        ] {
            let error = serde_json::from_value::<RelayPublicKey>(wrong).unwrap_err().to_string();
            assert!(error.len() < 200, "{error}");
        }
    }

    #[test]
    fn a_seed_always_makes_the_keys_of_the_known_answers() {
        let bytes: Vec<u8> = (0x20..0x40).chain(0x80..0xc0).collect();
        let seed = IdentitySeed::from_bytes(&bytes).unwrap();
        let key = RelayIdentity::from_seed(&seed).unwrap().public_key();
        let hex: String = key.x25519.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "358072d6365880d1aeea329adf9121383851ed21a28e3b75e965d0d2cd166254");
        let hash = digest::digest(&digest::SHA256, &*key.mlkem768);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "47922d0734559ff7695d5ae2e2d63837cd51a2c1ebc67b6f8ba2843252c030c6");
        assert!(IdentitySeed::from_bytes(&bytes[1..]).is_none());
        let (one, other) = (IdentitySeed::generate().unwrap(), IdentitySeed::generate().unwrap());
        assert_ne!(one.as_bytes(), other.as_bytes());
    }

    #[test]
    fn a_fingerprint_depends_on_both_keys() {
        let (key, _) = key_and_json();
        let (mut other_x25519, mut other_mlkem768) = (key.clone(), key.clone());
        other_x25519.x25519[0] ^= 1;
        other_mlkem768.mlkem768[1183] ^= 1;
        assert_ne!(key.fingerprint(), other_x25519.fingerprint());
        assert_ne!(key.fingerprint(), other_mlkem768.fingerprint());
        assert_eq!(key.fingerprint().len(), "SHA256:".len() + 43);
    }
}
