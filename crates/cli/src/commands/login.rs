//! `login`: stores the key that this program sends to a service as its credential.

use std::process::ExitCode;

use anyhow::Context as _;
use exec_server::{KeyStore, variables_of_this_process};

use super::args::LoginArgs;
use super::hidden_input::read_secret;
use super::print::print;
use crate::terminal_text::readable;

/// The variable with a key that takes precedence over all stored keys.
const OWN_KEY: &str = "EXEC_SERVER_API_KEY";

pub(crate) async fn login(args: LoginArgs) -> anyhow::Result<ExitCode> {
    let store = key_store()?;
    // Before the question, so that nobody types a key that cannot be stored.
    let service = KeyStore::check_service(&args.url)?;
    let key = match read_secret(&format!("Key for {service} (it is not shown): ")).await? {
        Ok(key) => key,
        Err(fatal) => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let receipt = store.store(&args.url, &key)?;
    let verb = if receipt.replaced { "replaced" } else { "stored" };
    let mut text = format!("{verb} the key for {service} in {}\n", readable(&store.path().display().to_string()));
    if is_set(OWN_KEY) {
        text += &format!("{OWN_KEY} is set and is used in place of the stored key\n");
    }
    print(&text).await?;
    Ok(ExitCode::SUCCESS)
}

/// The file with the stored keys.
pub(super) fn key_store() -> anyhow::Result<KeyStore> {
    KeyStore::locate(&variables_of_this_process(), None)
        .context("there is no directory for keys; set EXEC_SERVER_HOME or HOME to an absolute path")
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.trim().is_empty())
}
