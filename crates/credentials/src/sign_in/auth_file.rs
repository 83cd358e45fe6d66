//! The file `auth.json`, which `codex login` writes. Only its members that are needed here are read, and all others
//! stay as they are when tokens are replaced. Start with [`AuthFile`].

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::token_renewal::RenewedTokens;
use crate::account::Account;
use crate::error::CredentialError;
use crate::file_reading::{FileTrust, on_thread_in_time, read};
use crate::file_writing;
use crate::json_web_token::expiry;
use crate::secret::{Secret, is_header_word};

/// Largest file that is read.
pub(super) const MAX_AUTH_FILE_BYTES: u64 = 1024 * 1024;

/// The members of the file that matter here.
#[derive(Deserialize)]
pub(super) struct AuthFile {
    #[serde(rename = "OPENAI_API_KEY")]
    api_key: Option<Secret>,
    tokens: Option<StoredTokens>,
}

#[derive(Deserialize)]
struct StoredTokens {
    access_token: Secret,
    refresh_token: Option<Secret>,
    account_id: Option<String>,
    /// Names the account too. It can have another form than text.
    id_token: Option<Value>,
}

/// The key or the tokens of a sign-in.
#[derive(Clone, Debug)]
pub(super) struct SignInSecret {
    /// Sent with each request.
    pub(super) token: Secret,
    pub(super) is_api_key: bool,
    pub(super) refresh_token: Option<Secret>,
    pub(super) account: Account,
    /// `None` if the token does not say it.
    pub(super) expires: Option<SystemTime>,
}

impl AuthFile {
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, CredentialError> {
        let file: Self = serde_json::from_slice(bytes).map_err(|_| {
            CredentialError::file(path, "is damaged, or has another form than expected; sign in again")
        })?;
        let words = [file.api_key.as_ref(), file.tokens.as_ref().map(|tokens| &tokens.access_token)];
        let accounts = file.tokens.as_ref().and_then(|tokens| tokens.account_id.as_deref());
        let is_usable = words.into_iter().flatten().map(Secret::expose).chain(accounts).all(is_empty_or_word);
        is_usable.then_some(file).ok_or_else(|| {
            CredentialError::file(path, "holds a token that cannot be sent in a header; sign in again")
        })
    }

    /// The tokens, or else the API key. `None` if there is neither.
    pub(super) fn secret(self) -> Option<SignInSecret> {
        if let Some(tokens) = self.tokens.filter(|tokens| !tokens.access_token.expose().is_empty()) {
            let id_token = tokens.id_token.as_ref().and_then(Value::as_str);
            let account = account(id_token, &tokens.access_token, tokens.account_id.filter(|id| !id.is_empty()));
            let expires = expiry(tokens.access_token.expose());
            let refresh_token = tokens.refresh_token.filter(|token| !token.expose().is_empty());
            return Some(SignInSecret {
                token: tokens.access_token,
                is_api_key: false,
                refresh_token,
                account,
                expires,
            });
        }
        let token = self.api_key.filter(|key| !key.expose().is_empty())?;
        let account = Account::default();
        Some(SignInSecret { token, is_api_key: true, refresh_token: None, account, expires: None })
    }
}

fn is_empty_or_word(text: &str) -> bool {
    text.is_empty() || is_header_word(text)
}

/// The account of a sign-in: the id in the file, and the claims of its tokens.
fn account(id_token: Option<&str>, access_token: &Secret, id: Option<String>) -> Account {
    let [first, second] = [id_token.unwrap_or_default(), access_token.expose()].map(Account::named_by);
    Account {
        id: id.or(first.id).or(second.id),
        user: first.user.or(second.user),
        plan: first.plan.or(second.plan),
        is_fedramp: first.is_fedramp || second.is_fedramp,
    }
}

impl SignInSecret {
    /// This sign-in with renewed tokens.
    pub(super) fn renewed(&self, tokens: &RenewedTokens) -> Self {
        let id_token = tokens.id_token.as_ref().map(Secret::expose);
        // New tokens need not name the account. If they do, the caller compares it.
        let named = account(id_token, &tokens.access_token, None);
        let account = if named == Account::default() { self.account.clone() } else { named };
        let account = Account { id: account.id.or_else(|| self.account.id.clone()), ..account };
        Self {
            token: tokens.access_token.clone(),
            is_api_key: false,
            refresh_token: tokens.refresh_token.clone().or_else(|| self.refresh_token.clone()),
            account,
            expires: expiry(tokens.access_token.expose()),
        }
    }
}

/// Replaces the tokens in the file. Returns false if the file holds another access token than `expected`, which
/// another program has written meanwhile.
pub(super) async fn write(path: &Path, expected: &Secret, tokens: &RenewedTokens) -> Result<bool, CredentialError> {
    let (target, expected, tokens) = (path.to_owned(), expected.clone(), tokens.clone());
    on_thread_in_time(path, move || replace_tokens(&target, &expected, &tokens)).await
}

fn replace_tokens(path: &Path, expected: &Secret, tokens: &RenewedTokens) -> Result<bool, CredentialError> {
    let failed = |reason: String| CredentialError::file(path, format!("cannot be written: {reason}"));
    let Some(bytes) = read(path, MAX_AUTH_FILE_BYTES, FileTrust::Foreign)? else { return Ok(false) };
    let Ok(mut file) = serde_json::from_slice::<Value>(&bytes) else { return Ok(false) };
    let stored = &mut file["tokens"];
    if stored["access_token"].as_str() != Some(expected.expose()) {
        return Ok(false);
    }
    stored["access_token"] = json!(tokens.access_token.expose());
    for (name, token) in [("refresh_token", &tokens.refresh_token), ("id_token", &tokens.id_token)] {
        if let Some(token) = token {
            stored[name] = json!(token.expose());
        }
    }
    // A link stays a link.
    let target = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
    let owner = fs::metadata(&target).map_err(|error| failed(error.to_string()))?.uid();
    if owner != rustix::process::geteuid().as_raw() {
        return Err(failed("it belongs to another user, who could not read it afterwards".to_owned()));
    }
    let text = Zeroizing::new(serde_json::to_vec_pretty(&file).map_err(|error| failed(error.to_string()))?);
    file_writing::replace(&target, &text).map_err(|error| failed(error.to_string()))?;
    Ok(true)
}
