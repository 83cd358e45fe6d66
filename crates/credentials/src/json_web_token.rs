//! JSON Web Tokens: reading their claims, and verifying the signature of a token whose claims must be true. Only
//! RS256 is accepted. This module knows neither the clock nor the meaning of claims, apart from `exp`. Start with
//! [`verified_claims`].

use std::time::SystemTime;

use aws_lc_rs::rsa::PublicKeyComponents;
use aws_lc_rs::signature::RSA_PKCS1_2048_8192_SHA256;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use crate::clock::from_unix_seconds;

/// Why the claims of a token are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenFault {
    #[error("is no signed JSON Web Token")]
    Malformed,
    #[error("is signed with another algorithm than RS256")]
    Algorithm,
    #[error("names no key that its issuer has published")]
    UnknownKey,
    #[error("has a wrong signature")]
    Signature,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
}

/// The keys that an issuer has published (a JWK set).
#[derive(Debug, Deserialize)]
pub(crate) struct PublishedKeys {
    /// Keys that this program does not understand are allowed, so they are read one by one.
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct RsaKey {
    kty: String,
    kid: String,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    n: String,
    e: String,
}

impl PublishedKeys {
    /// The RSA key with this id that may verify RS256 signatures.
    fn rsa_key(&self, id: &str) -> Option<PublicKeyComponents<Vec<u8>>> {
        let keys = self.keys.iter().filter_map(|key| RsaKey::deserialize(key).ok());
        let is_right = |key: &RsaKey| {
            key.kid == id
                && key.kty == "RSA"
                && key.alg.as_ref().is_none_or(|alg| alg == "RS256")
                && key.usage.as_ref().is_none_or(|usage| usage == "sig")
        };
        let key = keys.into_iter().find(is_right)?;
        Some(PublicKeyComponents { n: decoded(&key.n)?, e: decoded(&key.e)? })
    }
}

/// The claims of a token that one of these keys has signed.
pub(crate) fn verified_claims(token: &str, keys: &PublishedKeys) -> Result<Value, TokenFault> {
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenFault::Malformed)?;
    let (header, claims) = signed.split_once('.').ok_or(TokenFault::Malformed)?;
    let header: TokenHeader =
        serde_json::from_slice(&decoded(header).ok_or(TokenFault::Malformed)?).map_err(|_| TokenFault::Malformed)?;
    if header.alg != "RS256" {
        return Err(TokenFault::Algorithm);
    }
    let key = header.kid.and_then(|id| keys.rsa_key(&id)).ok_or(TokenFault::UnknownKey)?;
    let signature = decoded(signature).ok_or(TokenFault::Malformed)?;
    key.verify(&RSA_PKCS1_2048_8192_SHA256, signed.as_bytes(), &signature).map_err(|_| TokenFault::Signature)?;
    let claims = decoded(claims).ok_or(TokenFault::Malformed)?;
    serde_json::from_slice(&claims).map_err(|_| TokenFault::Malformed)
}

/// The claims of a token, whoever has signed it. `None` if it is no JSON Web Token.
pub(crate) fn unverified_claims(token: &str) -> Option<Value> {
    let (_, rest) = token.split_once('.')?;
    let (claims, signature) = rest.split_once('.')?;
    let claims: Value = serde_json::from_slice(&decoded(claims)?).ok()?;
    (claims.is_object() && !signature.contains('.')).then_some(claims)
}

/// When a token expires, if it is a JSON Web Token that says so. The signature is not verified.
pub(crate) fn expiry(token: &str) -> Option<SystemTime> {
    let seconds = unverified_claims(token)?.get("exp")?.as_f64()?;
    // A negative number becomes 0, and a number that is too large becomes the largest.
    from_unix_seconds(seconds as u64)
}

/// Padding is not sent, and tolerated.
fn decoded(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

/// A token with these claims and without a real signature.
#[cfg(test)]
pub(crate) fn unsigned(claims: &Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", encode(&serde_json::json!({"alg": "RS256"})), encode(claims))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::TokenIssuer as Issuer;

    use super::*;

    fn verify(token: &str, keys: &Value) -> Result<Value, TokenFault> {
        verified_claims(token, &serde_json::from_value(keys.clone()).unwrap())
    }

    #[test]
    fn only_a_token_that_a_published_key_has_signed_is_believed() {
        let (issuer, claims) = (Issuer::generate(), json!({"exp": 5}));
        let keys = issuer.published("k");
        let token = issuer.token(&json!({"alg": "RS256", "kid": "k"}), &claims);
        assert_eq!(verify(&token, &keys), Ok(claims.clone()));

        let stranger = Issuer::generate().token(&json!({"alg": "RS256", "kid": "k"}), &claims);
        assert_eq!(verify(&stranger, &keys), Err(TokenFault::Signature));
        let (rest, signature) = token.rsplit_once('.').unwrap();
        let header = rest.split_once('.').unwrap().0;
        let other_claims = BASE64_URL_SAFE_NO_PAD.encode(json!({"exp": 6}).to_string());
        assert_eq!(verify(&format!("{header}.{other_claims}.{signature}"), &keys), Err(TokenFault::Signature));
        assert_eq!(verify(&format!("{rest}."), &keys), Err(TokenFault::Signature));

        for (header, fault) in [
            (json!({"alg": "none", "kid": "k"}), TokenFault::Algorithm),
            (json!({"alg": "HS256", "kid": "k"}), TokenFault::Algorithm),
            (json!({"alg": "RS256", "kid": "other"}), TokenFault::UnknownKey),
            (json!({"alg": "RS256"}), TokenFault::UnknownKey),
            (json!({"kid": "k"}), TokenFault::Malformed),
        ] {
            assert_eq!(verify(&issuer.token(&header, &claims), &keys), Err(fault), "{header}");
        }
        for malformed in ["", "a", "a.b", "a.b.c", "..", "at-personal"] {
            assert_eq!(verify(malformed, &keys), Err(TokenFault::Malformed), "{malformed}");
        }
    }

    #[test]
    fn a_key_for_another_use_or_algorithm_does_not_count() {
        let issuer = Issuer::generate();
        let token = issuer.token(&json!({"alg": "RS256", "kid": "k"}), &json!({}));
        for (member, value) in [("use", "enc"), ("alg", "RS512"), ("kty", "EC"), ("n", "!")] {
            let mut keys = issuer.published("k");
            keys["keys"][1][member] = json!(value);
            assert_eq!(verify(&token, &keys), Err(TokenFault::UnknownKey), "{member}");
        }
        let mut keys = issuer.published("k");
        // A key of 8 bits would verify anything after some computing.
        keys["keys"][1]["n"] = json!("8Q");
        assert_eq!(verify(&token, &keys), Err(TokenFault::Signature));
    }

    #[test]
    fn the_expiry_is_read_without_a_signature() {
        let expiry_of = |claims: Value| expiry(&unsigned(&claims));
        assert_eq!(expiry_of(json!({"exp": 1_787_378_083})), from_unix_seconds(1_787_378_083));
        assert_eq!(expiry_of(json!({"exp": 7.9})), from_unix_seconds(7));
        assert_eq!(expiry_of(json!({"exp": -1})), from_unix_seconds(0));
        assert_eq!(expiry_of(json!({"exp": 1e300})), None);
        assert_eq!(expiry_of(json!({"exp": "5"})), None);
        assert_eq!(expiry_of(json!({})), None);
        assert_eq!(expiry("opaque"), None);
    }
}
