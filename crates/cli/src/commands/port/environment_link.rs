//! The client that all forwarded connections share. If the client has given up, for example because the server was
//! restarted, the next forwarded connection makes another client: forwarded ports need no particular session.

use client::{ConnectionState, ExecServerClient, ExecServerError, PortStream};
use tokio::sync::Mutex;

use crate::commands::destination::Destination;

pub(super) struct EnvironmentLink {
    destination: Destination,
    client: Mutex<ExecServerClient>,
}

impl EnvironmentLink {
    pub(super) fn new(destination: Destination, client: ExecServerClient) -> Self {
        Self { destination, client: Mutex::new(client) }
    }

    /// Opens a stream. While the connection to the server is lost, this waits until the connection is back or the client
    /// gives up.
    pub(super) async fn connect_port(&self, host: &str, port: u16) -> anyhow::Result<PortStream> {
        let client = self.usable_client().await?;
        match client.connect_port(host, port).await {
            // The client has given up meanwhile, so the server does not know of the stream.
            Err(ExecServerError::Disconnected(_)) if has_failed(&client) => {
                Ok(self.usable_client().await?.connect_port(host, port).await?)
            }
            result => Ok(result?),
        }
    }

    /// The client, for the end of the command, which closes it.
    pub(super) async fn client(&self) -> ExecServerClient {
        self.client.lock().await.clone()
    }

    async fn usable_client(&self) -> anyhow::Result<ExecServerClient> {
        let mut client = self.client.lock().await;
        if has_failed(&client) {
            *client = self.destination.clone().connect().await?;
        }
        Ok(client.clone())
    }
}

fn has_failed(client: &ExecServerClient) -> bool {
    matches!(&*client.connection_state().borrow(), ConnectionState::Failed(_))
}
