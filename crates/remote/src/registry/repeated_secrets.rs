//! A service may repeat the credential in the text of an error, and errors are logged and shown. Start with
//! [`without_secrets`].

use credentials::AuthHeaders;

use super::error::RegistryError;

/// The error without the credential in these headers, wherever the text of the service has it.
pub(super) fn without_secrets(mut error: RegistryError, headers: &AuthHeaders) -> RegistryError {
    match &mut error {
        RegistryError::Authentication { message, .. } | RegistryError::Offline { message } => {
            *message = headers.hidden_in(message);
        }
        RegistryError::Refused { code, message, .. } => {
            *message = headers.hidden_in(message);
            *code = code.take().map(|code| headers.hidden_in(&code));
        }
        _ => {}
    }
    error
}
