//! The headers that prove to a service who makes a request. Start with [`AuthHeaders`].

use std::fmt;

use zeroize::Zeroize as _;

use crate::account::Account;

/// The headers of one request. `Debug` shows their names only. The values are overwritten in memory when they are
/// dropped.
#[derive(Clone)]
pub struct AuthHeaders(Vec<(String, String)>);

const AUTHORIZATION: &str = "Authorization";

impl AuthHeaders {
    /// The headers with this value of `Authorization`. The name of the scheme, such as `Bearer`, is in the value.
    pub(crate) fn new(authorization: String, account: &Account) -> Self {
        let mut headers = vec![(AUTHORIZATION.to_owned(), authorization)];
        if let Some(id) = &account.id {
            headers.push(("ChatGPT-Account-ID".to_owned(), id.clone()));
        }
        if account.is_fedramp {
            headers.push(("X-OpenAI-Fedramp".to_owned(), "true".to_owned()));
        }
        Self(headers)
    }

    /// Names and values, in the order in which they are sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The text with `[secret]` in every place where it contains the secret of the header `Authorization`, which is the
    /// part after the name of the scheme.
    pub fn hidden_in(&self, text: &str) -> String {
        let values = self.0.iter().filter(|(name, _)| name == AUTHORIZATION);
        let secret = values.filter_map(|(_, value)| value.rsplit(' ').next()).find(|secret| !secret.is_empty());
        secret.map_or(text.to_owned(), |secret| text.replace(secret, "[secret]"))
    }

    /// The value of `Authorization` after the name of the scheme and a space. `None` if the scheme is another one.
    pub(crate) fn credentials_of(&self, scheme: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| name == AUTHORIZATION)?;
        value.strip_prefix(scheme)?.strip_prefix(' ')
    }
}

impl Drop for AuthHeaders {
    fn drop(&mut self) {
        for (_, value) in &mut self.0 {
            value.zeroize();
        }
    }
}

impl fmt::Debug for AuthHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_account_has_headers_of_its_own_and_values_are_not_shown() {
        let account = Account { id: Some("acc-1".into()), is_fedramp: true, ..Account::default() };
        let headers = AuthHeaders::new("Bearer secret-1".into(), &account);
        let expected =
            [("Authorization", "Bearer secret-1"), ("ChatGPT-Account-ID", "acc-1"), ("X-OpenAI-Fedramp", "true")];
        assert_eq!(headers.iter().collect::<Vec<_>>(), expected);
        assert_eq!(format!("{headers:?}"), r#"["Authorization", "ChatGPT-Account-ID", "X-OpenAI-Fedramp"]"#);
        assert_eq!(headers.credentials_of("Bearer"), Some("secret-1"));
        assert_eq!(headers.credentials_of("Bear"), None);
        assert_eq!(headers.hidden_in("no secret-1, secret-1!"), "no [secret], [secret]!");
        let unknown = AuthHeaders::new("Bearer secret-1".into(), &Account::default());
        assert_eq!(unknown.iter().count(), 1);
    }
}
