//! Issuers of tokens for tests of credentials: JSON Web Tokens that are signed with an RSA key, and an agent identity
//! with the services that publish its issuer's keys and register its tasks. Start with [`TestAgent`].

use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::http_peer::{HttpPeer, http_ok};

/// An RSA key that signs tokens.
pub struct TokenIssuer(KeyPair);

impl TokenIssuer {
    /// Generates a new key.
    pub fn generate() -> Self {
        Self(KeyPair::generate(KeySize::Rsa2048).unwrap())
    }

    /// The key set that the issuer publishes (a JWK set), with a key of another kind beside its own.
    pub fn published(&self, id: &str) -> Value {
        // The DER form of a 2048-bit key is a sequence of two integers: a header of 9 bytes, the modulus, a header
        // of 2 bytes, and the exponent.
        let der = self.0.public_key().as_ref();
        let (modulus, exponent) = (&der[9..265], &der[267..]);
        json!({"keys": [
            {"kty": "OKP", "kid": id, "crv": "Ed25519", "x": "AAAA"},
            {"kty": "RSA", "kid": id, "alg": "RS256", "use": "sig",
             "n": BASE64_URL_SAFE_NO_PAD.encode(modulus), "e": BASE64_URL_SAFE_NO_PAD.encode(exponent)},
        ]})
    }

    /// A token with this header and these claims.
    pub fn token(&self, header: &Value, claims: &Value) -> String {
        let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }
}

/// A token with these claims and an invalid signature.
pub fn unsigned_token(claims: &Value) -> String {
    let encode = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.c2ln", encode(&json!({"alg": "RS256"})), encode(claims))
}

/// An agent with its private key, and the issuer of its identity.
pub struct TestAgent {
    issuer: TokenIssuer,
    key: Ed25519KeyPair,
    /// The private key of the agent, in base64.
    private_key: String,
}

impl TestAgent {
    /// The id of every agent.
    pub const RUNTIME_ID: &str = "agent-rt-1";
    /// The account of every agent.
    pub const ACCOUNT: &str = "account-of-agent";

    /// Generates an agent with new keys.
    pub fn generate() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        Self { issuer: TokenIssuer::generate(), key, private_key: BASE64_STANDARD.encode(pkcs8.as_ref()) }
    }

    /// The claims of the identity. `expires` is a Unix time in seconds.
    pub fn claims(&self, expires: u64) -> Value {
        json!({
            "iss": "https://chatgpt.com/codex-backend/agent-identity", "aud": "codex-app-server", "exp": expires,
            "agent_runtime_id": Self::RUNTIME_ID, "agent_private_key": self.private_key,
            "account_id": Self::ACCOUNT, "chatgpt_user_id": "user-1", "plan_type": "team",
            "chatgpt_account_is_fedramp": true,
        })
    }

    /// A signed identity token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.issuer.token(&json!({"alg": "RS256", "kid": "key-1"}), claims)
    }

    /// The private key, in base64. Tests check that it is not shown anywhere.
    pub fn private_key(&self) -> &str {
        &self.private_key
    }

    /// The public key, an Ed25519 point.
    pub fn public_key(&self) -> &[u8] {
        self.key.public_key().as_ref()
    }

    /// Whether this signature of `text` (in base64) was made with the key of the agent.
    pub fn has_signed(&self, text: &str, signature: &str) -> bool {
        let signature = BASE64_STANDARD.decode(signature).unwrap();
        UnparsedPublicKey::new(&ED25519, self.public_key()).verify(text.as_bytes(), &signature).is_ok()
    }

    /// Starts a peer that publishes the key of the issuer and answers each registration of a task with the JSON text
    /// that `register` returns.
    pub async fn start_issuers(self: &Arc<Self>, register: impl Fn() -> String + Send + Sync + 'static) -> HttpPeer {
        let keys = self.issuer.published("key-1").to_string();
        let task_path = format!("POST /v1/agent/{}/task/register ", Self::RUNTIME_ID);
        HttpPeer::closing(move |request| match request {
            keys_request if keys_request.starts_with("GET /agent-identities/jwks ") => http_ok(&keys),
            task_request if task_request.starts_with(&task_path) => http_ok(&register()),
            _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
        })
        .await
    }
}

/// Decodes the assertion in the header `Authorization` of an agent.
pub fn agent_assertion(authorization: &str) -> Value {
    let encoded = authorization.strip_prefix("AgentAssertion ").unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(encoded).unwrap()).unwrap()
}
