//! `logout`: removes the stored key of a service.

use std::process::ExitCode;

use exec_server::KeyStore;

use super::args::LogoutArgs;
use super::login::key_store;
use super::print::print;
use crate::terminal_text::readable;

pub(crate) async fn logout(args: LogoutArgs) -> anyhow::Result<ExitCode> {
    let store = key_store()?;
    let service = KeyStore::service_of(&args.url)?;
    let path = readable(&store.path().display().to_string());
    let text = match store.remove(&args.url)? {
        true => format!("removed the key for {service} from {path}\n"),
        false => format!("there was no key for {service} in {path}\n"),
    };
    print(&text).await?;
    Ok(ExitCode::SUCCESS)
}
