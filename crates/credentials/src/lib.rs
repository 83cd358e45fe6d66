//! Decides who this program is to a service, and makes the headers that prove it: with an API key, with the tokens of
//! a sign-in, with the identity of a workload or with that of an agent. Tokens are renewed before they expire. This
//! crate knows neither the requests that carry the headers nor what the service does. Start with [`choose`].
//!
//! A credential goes only to the service for which it was chosen, and never over plain HTTP, except to this machine.
//! No error, description or `Debug` text contains a secret.

#![forbid(unsafe_code)]

mod account;
mod agent_identity;
mod auth_headers;
mod clock;
mod credential;
mod destination;
mod error;
mod file_reading;
mod file_writing;
mod fixed_token;
mod json_web_token;
mod key_store;
mod private_lock;
mod renewed;
mod secret;
mod sign_in;
mod sources;
mod token_request;
mod variables;
mod workload_identity;

pub use auth_headers::AuthHeaders;
pub use clock::{SystemClock, WallClock};
pub use credential::{Credential, CredentialDescription, CredentialKind, HeadersFuture};
pub use error::CredentialError;
pub use fixed_token::bearer;
pub use key_store::{KeyStore, StoredKeyReceipt};
pub use sources::{CredentialSettings, SurveyedCredential, choose, choose_at, survey};
