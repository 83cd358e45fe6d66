//! Connects to kept sessions. A kept session has a name and outlives the command that has started it.
//! [`saved_sessions`] remembers the id of the session for each name and server. Start reading at
//! [`Destination::connect_to_session`].

use std::time::Duration;

use anyhow::Context as _;
use client::{
    EnvironmentLocation, ExecServerClient, ExecServerClientConnectOptions, ExecServerError, RemoteLocation,
};
use protocol::ErrorCode;

use super::args::DEFAULT_KEEP;
use super::destination::Destination;
use super::print::report;
use super::saved_sessions::SessionRecord;
use super::{background_server, saved_sessions};

/// What a command does in a kept session, which one client at a time can be attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionUse {
    /// Take the session over and receive the events of its processes. A client that was attached loses the session.
    Attach,
    /// Start a command and receive its events. While another client is attached, this is refused: that client would
    /// lose the session.
    Run,
    /// List, read, start and kill processes beside the client that is attached. On a server without the capability
    /// `sessionObserve`, the command takes the session over instead.
    Observe,
}

/// Says whether a session that does not exist is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionCreation {
    /// A missing session is an error.
    Never,
    /// A missing session is made.
    IfMissing {
        /// The value of `--keep`. Without it, the session is kept for [`DEFAULT_KEEP`], or for longer if an earlier
        /// command has asked for that.
        keep: Option<Duration>,
    },
}

impl SessionCreation {
    fn is_allowed(self) -> bool {
        self != Self::Never
    }

    /// How long the server is asked to keep the session. `None`: an earlier request stays in force.
    fn keep(self, saved: Option<&SessionRecord>) -> Option<Duration> {
        let Self::IfMissing { keep } = self else { return None };
        keep.or_else(|| match saved {
            Some(record) => record.keep.map(|so_far| so_far.max(DEFAULT_KEEP)),
            None => Some(DEFAULT_KEEP),
        })
    }
}

impl Destination {
    /// Connects to the kept session of this name. If the server does not have the session and a new one is made, the
    /// old one stays saved under another name: the server that has it may answer at the same address again.
    pub(crate) async fn connect_to_session(
        mut self,
        name: &str,
        creation: SessionCreation,
        session_use: SessionUse,
    ) -> anyhow::Result<ExecServerClient> {
        // An invalid name is refused before a server is started for it.
        saved_sessions::check_name(name)?;
        if matches!(self.location, EnvironmentLocation::Local) {
            // The session needs a server that outlives us. A server that is our child would end with us.
            let start = creation.is_allowed().then_some(self.background_idle);
            let server = background_server::find_or_start(start).await?;
            self.location = server.with_context(|| no_session(name, "on this machine"))?;
        }
        let url = match &self.location {
            EnvironmentLocation::Url { url, .. } => url.clone(),
            EnvironmentLocation::Remote(RemoteLocation { service, environment_id, .. }) => {
                format!("{service}#{environment_id}")
            }
            EnvironmentLocation::Local | EnvironmentLocation::Program { .. } | EnvironmentLocation::Ssh { .. } => {
                anyhow::bail!(
                    "a session can be kept only on a server that listens; this one ends with its connection"
                )
            }
        };
        let address = self.address();
        let mut saved = saved_sessions::load(name, &url)?;
        if saved.is_none() && !creation.is_allowed() {
            anyhow::bail!(no_session(name, &format!("at {address}")));
        }
        let mut options = self.options.clone();
        options.keep_for = creation.keep(saved.as_ref());
        options.takeover = saved.is_some() && session_use == SessionUse::Attach;
        options.observe = saved.is_some() && session_use == SessionUse::Observe;
        options.resume_session_id = saved.as_ref().map(|record| record.session.clone());
        let client = match ExecServerClient::connect_boxed(self.connector()?, options.clone()).await {
            Err(error) if error.is_still_attached() && session_use == SessionUse::Run => anyhow::bail!(
                "another command is attached to the session `{name}`; give another --session, or start yours in the \
                 background with `exec-server run -d` and read its output with `exec-server logs -f`"
            ),
            // The session has expired, or another server answers at this address by now.
            Err(ExecServerError::Server { code, message, .. })
                if saved.is_some() && code == ErrorCode::InvalidRequest.number() =>
            {
                anyhow::ensure!(
                    creation.is_allowed(),
                    "the server at {address} does not have the session `{name}`, or not any more: {message}"
                );
                options = ExecServerClientConnectOptions {
                    keep_for: creation.keep(None),
                    resume_session_id: None,
                    takeover: false,
                    observe: false,
                    ..options
                };
                let client = ExecServerClient::connect_boxed(self.connector()?, options.clone()).await?;
                if let Err(error) = set_aside_and_report(name, &url, &address, saved.take()) {
                    // The name still belongs to the old session, so no command could find the new one.
                    client.end_session().await;
                    return Err(error);
                }
                client
            }
            result => result?,
        };
        // This also makes the client know the capabilities: with `sessionObserve`, it does not reconnect after
        // another client has taken its session over.
        let capabilities = client.capabilities().await?;
        anyhow::ensure!(
            !creation.is_allowed() || capabilities.session_keep,
            "the server at {address} cannot keep sessions; run the command without --session"
        );
        let session = client.session_id().context("the server names no session")?.clone();
        let keep = options.keep_for.or(saved.as_ref().and_then(|record| record.keep));
        let record = SessionRecord { session, keep };
        let is_new = saved.is_none();
        if saved != Some(record.clone())
            && let Err(error) = saved_sessions::save(name, &url, &record)
        {
            if is_new {
                // No command could find the session again.
                client.end_session().await;
            }
            return Err(error);
        }
        saved_sessions::touch(name, &url)?;
        Ok(client)
    }
}

/// Saves the session under another name, because the server does not have it, and tells the user that name. It does
/// nothing if the session has expired.
fn set_aside_and_report(name: &str, url: &str, address: &str, saved: Option<SessionRecord>) -> anyhow::Result<()> {
    let former = saved.map(|record| saved_sessions::set_aside(name, url, &record)).transpose()?;
    if let Some(former) = former.flatten() {
        report(&format!(
            "the server at {address} does not have the session `{name}`, so a new one was started; if the server that has \
             the old one comes back, use --session {former}"
        ));
    }
    Ok(())
}

/// The error for a session that is not saved. `place`: where it was looked for.
fn no_session(name: &str, place: &str) -> String {
    format!("there is no session `{name}` {place}; start one with `exec-server run --session {name}`")
}
