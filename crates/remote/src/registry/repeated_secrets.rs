//! Removes the credential from the error text of a service. A service may repeat the credential there, and errors are
//! logged and shown. Start with [`without_secrets`].

use credentials::AuthHeaders;

use super::error::RegistryError;

/// The error with `[secret]` in every place where the service has repeated the credential in these headers.
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
