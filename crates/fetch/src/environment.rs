//! The environment variables of a fetcher, usually those of the exec-server process, and the rules for using them in
//! request headers. The error texts are part of the protocol, and call the exec-server "executor". Start with
//! [`Environment::header_value`].

use std::collections::HashMap;

use crate::error::FetchError;
use crate::request::Header;

/// Variables that hold secrets of the exec-server itself, and that no header may use. A client could otherwise have
/// these secrets sent to any host. Names are compared without regard to case.
const FORBIDDEN_VARIABLES: &[&str] = &[
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "EXEC_SERVER_API_KEY",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// The environment variables that the fetcher was configured with.
pub(crate) struct Environment(HashMap<String, String>);

impl Environment {
    pub(crate) fn new(variables: Vec<(String, String)>) -> Self {
        Self(variables.into_iter().collect())
    }

    /// The value of a variable. None if it is not set or empty.
    pub(crate) fn non_empty(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The value to send for a header: its `value` alone, or followed by the value of the variable that the header
    /// names. Fails if the variable is forbidden, not set or empty.
    pub(crate) fn header_value(&self, header: &Header) -> Result<String, FetchError> {
        let (name, prefix) = (&header.name, &header.value);
        let Some(variable) = &header.value_env_var else { return Ok(prefix.clone()) };
        if FORBIDDEN_VARIABLES.iter().any(|forbidden| forbidden.eq_ignore_ascii_case(variable)) {
            return Err(FetchError::Invalid(format!(
                "http/request header {name} cannot use executor environment variable {variable}"
            )));
        }
        match self.0.get(variable).map(String::as_str) {
            None => Err(FetchError::Invalid(format!(
                "http/request header {name} requires executor environment variable {variable}"
            ))),
            Some("") => Err(FetchError::Invalid(format!(
                "http/request header {name} requires a non-empty executor environment variable {variable}"
            ))),
            Some(value) => Ok(format!("{prefix}{value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_value(prefix: &str, variable: Option<&str>) -> Result<String, String> {
        let variables = [("TOKEN", "t0ken"), ("EMPTY", ""), ("OPENAI_API_KEY", "key"), ("codex_api_key", "key")];
        let environment = Environment::new(variables.map(|(name, value)| (name.into(), value.into())).into());
        let header =
            Header { name: "X-Auth".into(), value: prefix.into(), value_env_var: variable.map(str::to_owned) };
        environment.header_value(&header).map_err(|error| error.to_string())
    }

    #[test]
    fn the_value_of_the_variable_follows_the_value_of_the_header() {
        assert_eq!(header_value("plain", None).unwrap(), "plain");
        assert_eq!(header_value("Bearer ", Some("TOKEN")).unwrap(), "Bearer t0ken");
        assert_eq!(header_value("", Some("TOKEN")).unwrap(), "t0ken");
    }

    #[test]
    fn the_error_names_a_variable_that_is_missing_empty_or_forbidden() {
        let texts = [
            ("MISSING", "http/request header X-Auth requires executor environment variable MISSING"),
            // The variable TOKEN is set, but names of variables are case-sensitive.
            ("token", "http/request header X-Auth requires executor environment variable token"),
            ("EMPTY", "http/request header X-Auth requires a non-empty executor environment variable EMPTY"),
            ("OPENAI_API_KEY", "http/request header X-Auth cannot use executor environment variable OPENAI_API_KEY"),
            ("codex_api_key", "http/request header X-Auth cannot use executor environment variable codex_api_key"),
            // The error for a forbidden variable does not tell whether the variable is set.
            (
                "Aws_Session_Token",
                "http/request header X-Auth cannot use executor environment variable Aws_Session_Token",
            ),
        ];
        for (variable, text) in texts {
            assert_eq!(header_value("Bearer ", Some(variable)).unwrap_err(), text);
        }
    }
}
