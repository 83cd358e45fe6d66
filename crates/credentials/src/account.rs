//! The account that a token belongs to, as far as the token or its file says it. Start with [`Account`].

use serde::Deserialize;

use crate::json_web_token;
use crate::secret::is_header_word;

/// An account of the service that issued a token. A field is empty if nothing says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    /// Sent as `ChatGPT-Account-ID`.
    pub(crate) id: Option<String>,
    pub(crate) user: Option<String>,
    /// The kind of the workspace.
    pub(crate) plan: Option<String>,
    pub(crate) is_fedramp: bool,
}

/// The member of a token's claims that holds the claims about the account.
const CLAIMS_ABOUT_ACCOUNT: &str = "https://api.openai.com/auth";

#[derive(Default, Deserialize)]
#[serde(default)]
struct AccountClaims {
    chatgpt_account_id: Option<String>,
    chatgpt_user_id: Option<String>,
    chatgpt_plan_type: Option<String>,
    chatgpt_account_is_fedramp: Option<bool>,
}

impl Account {
    /// The account that a token names, if the token is a JSON Web Token with such claims. The signature is not
    /// verified: the service that gets the token does that, and the claims only decide which headers go with it.
    pub(crate) fn named_by(token: &str) -> Self {
        let Some(mut claims) = json_web_token::unverified_claims(token) else { return Self::default() };
        let about_account = claims.get_mut(CLAIMS_ABOUT_ACCOUNT).map(serde_json::Value::take).unwrap_or(claims);
        let claims: AccountClaims = serde_json::from_value(about_account).unwrap_or_default();
        Self {
            // A value that no header can hold is no id.
            id: claims.chatgpt_account_id.filter(|id| is_header_word(id)),
            user: claims.chatgpt_user_id,
            plan: claims.chatgpt_plan_type,
            is_fedramp: claims.chatgpt_account_is_fedramp.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_web_token::unsigned;

    #[test]
    fn the_claims_of_a_token_name_its_account() {
        let claims = serde_json::json!({"chatgpt_account_id": "a", "chatgpt_user_id": "u",
            "chatgpt_plan_type": "team", "chatgpt_account_is_fedramp": true});
        let expected =
            Account { id: Some("a".into()), user: Some("u".into()), plan: Some("team".into()), is_fedramp: true };
        assert_eq!(Account::named_by(&unsigned(&serde_json::json!({CLAIMS_ABOUT_ACCOUNT: claims}))), expected);
        assert_eq!(Account::named_by(&unsigned(&claims)), expected);
        for other in ["opaque", "a.b.c", "", &unsigned(&serde_json::json!([1])), &unsigned(&serde_json::json!({}))] {
            assert_eq!(Account::named_by(other), Account::default(), "{other}");
        }
    }
}
