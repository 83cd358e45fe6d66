//! An agent whose token was verified: its id, its account and its key, which signs requests and opens sealed boxes.
//! This module makes no requests. Start with [`Agent::verified`].

use std::fmt;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA512, digest};
use aws_lc_rs::encoding::AsBigEndian as _;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crypto_box::SecretKey;
use serde::Deserialize;
use zeroize::{Zeroize as _, Zeroizing};

use super::{ACCESS_TOKEN, base64};
use crate::account::Account;
use crate::clock::from_unix_seconds;
use crate::error::CredentialError;
use crate::json_web_token::{PublishedKeys, verified_claims};
use crate::secret::{Secret, is_header_word};

const AUDIENCE: &str = "codex-app-server";
const ISSUER: &str = "https://chatgpt.com/codex-backend/agent-identity";

/// An agent whose token was verified.
pub(super) struct Agent {
    runtime_id: String,
    account: Account,
    key: Ed25519KeyPair,
    expires: SystemTime,
}

#[derive(Deserialize)]
struct AgentClaims {
    iss: String,
    aud: Audience,
    exp: u64,
    agent_runtime_id: String,
    agent_private_key: Secret,
    account_id: String,
    chatgpt_user_id: Option<String>,
    plan_type: Option<String>,
    #[serde(default)]
    chatgpt_account_is_fedramp: bool,
}

/// The claim `aud`, which may be one name or a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl Agent {
    /// The agent that the token names. Fails if none of these keys has signed the token, or if it is for another
    /// purpose. Whether it has expired is not checked.
    pub(super) fn verified(token: &Secret, keys: &PublishedKeys) -> Result<Self, CredentialError> {
        let unusable = |problem: &str| CredentialError::variable(ACCESS_TOKEN, problem);
        let claims = verified_claims(token.expose(), keys)
            .map_err(|fault| unusable(&format!("{fault}; set it to a valid agent identity")))?;
        let claims: AgentClaims =
            serde_json::from_value(claims).map_err(|_| unusable("lacks claims that an agent identity has"))?;
        let is_for_us = match &claims.aud {
            Audience::One(name) => name == AUDIENCE,
            Audience::Several(names) => names.iter().any(|name| name == AUDIENCE),
        };
        if claims.iss != ISSUER || !is_for_us {
            return Err(unusable("is a token of another issuer or for another purpose"));
        }
        if !is_header_word(&claims.account_id) {
            return Err(unusable("names no valid account"));
        }
        let is_path_part =
            is_header_word(&claims.agent_runtime_id) && !matches!(&*claims.agent_runtime_id, "." | "..");
        if !is_path_part {
            return Err(unusable("names no valid agent"));
        }
        let key = BASE64_STANDARD.decode(claims.agent_private_key.expose()).map(Zeroizing::new).ok();
        let key = key.and_then(|key| Ed25519KeyPair::from_pkcs8_maybe_unchecked(&key).ok());
        Ok(Self {
            runtime_id: claims.agent_runtime_id,
            account: Account {
                id: Some(claims.account_id),
                user: claims.chatgpt_user_id,
                plan: claims.plan_type,
                is_fedramp: claims.chatgpt_account_is_fedramp,
            },
            key: key.ok_or_else(|| unusable("holds no usable key of an agent"))?,
            expires: from_unix_seconds(claims.exp).ok_or_else(|| unusable("has an invalid time of expiry"))?,
        })
    }

    pub(super) fn runtime_id(&self) -> &str {
        &self.runtime_id
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn has_expired(&self, now: SystemTime) -> bool {
        now >= self.expires
    }

    /// The Ed25519 signature of a text, in base64.
    pub(super) fn sign(&self, text: &str) -> String {
        base64(self.key.sign(text.as_bytes()).as_ref())
    }

    /// Opens a sealed box of libsodium (`crypto_box_seal`) that was made for the key of this agent. `None` if it was
    /// not.
    pub(super) fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let seed = self.key.seed().ok()?;
        let seed = seed.as_be_bytes().ok()?;
        curve25519_key(seed.as_ref()).unseal(sealed).ok()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("runtime_id", &self.runtime_id).finish_non_exhaustive()
    }
}

/// The Curve25519 key that belongs to an Ed25519 seed, as in libsodium's `crypto_sign_ed25519_sk_to_curve25519`.
fn curve25519_key(seed: &[u8]) -> SecretKey {
    let hash = digest(&SHA512, seed);
    let mut scalar = [0; 32];
    scalar.copy_from_slice(&hash.as_ref()[..32]);
    // crypto_box clears and sets the bits that Curve25519 requires.
    let key = SecretKey::from_bytes(scalar);
    scalar.zeroize();
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        (0..hexadecimal.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).unwrap())
            .collect()
    }

    #[test]
    fn the_curve25519_key_is_that_of_libsodium() {
        // From the test `ed25519_convert` of libsodium.
        let seed = bytes("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee");
        let public = bytes("f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50");
        assert_eq!(curve25519_key(&seed).public_key().as_bytes().as_slice(), public);
    }
}
