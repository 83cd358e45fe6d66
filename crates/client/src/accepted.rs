//! Clients over sockets that the environment (the machine of the server) has opened to this machine. Such a client
//! cannot connect by itself: after a lost connection it waits until the program that accepts sockets hands over the
//! next socket.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot, watch};
use transport::MessageStream;

use crate::client::ExecServerClient;
use crate::client_core::ConnectionState;
use crate::connector::{Connecting, ServerConnector};
use crate::error::ExecServerError;
use crate::options::ExecServerClientConnectOptions;

/// Hands sockets that the environment has opened to the client that uses them.
#[derive(Clone)]
pub struct AcceptedSockets {
    client: ExecServerClient,
    sockets: mpsc::Sender<SocketOffer>,
    /// Locked while a socket is handed over, so that there is one replacement at a time.
    replacing: Arc<Mutex<()>>,
}

/// A socket for the next connection of the client.
struct SocketOffer {
    stream: MessageStream,
    /// Sent when the client begins to use the socket.
    taken: oneshot::Sender<()>,
}

/// Makes the connections of a client from sockets that the program has accepted.
struct AcceptedConnector {
    /// The socket of the first connection.
    first: parking_lot::Mutex<Option<MessageStream>>,
    /// The sockets of all later connections.
    offers: Mutex<mpsc::Receiver<SocketOffer>>,
}

/// Makes a client over a socket that the environment has opened. The second value of the result hands later sockets
/// to the client.
pub async fn accepted(
    stream: MessageStream,
    options: ExecServerClientConnectOptions,
) -> Result<(ExecServerClient, AcceptedSockets), ExecServerError> {
    if options.resume_session_id.is_some() {
        let text = "accepted exec-server initial connection cannot resume a session";
        return Err(ExecServerError::Protocol(text.to_owned()));
    }
    let (sockets, offers) = mpsc::channel(1);
    let connector = AcceptedConnector { first: parking_lot::Mutex::new(Some(stream)), offers: Mutex::new(offers) };
    let client = ExecServerClient::connect(connector, options).await?;
    Ok((client.clone(), AcceptedSockets { client, sockets, replacing: Arc::default() }))
}

impl AcceptedSockets {
    /// Gives the client a new socket and closes the current one. Returns when the client begins to use the new
    /// socket. [`ExecServerClient::connection_state`] then shows whether the client could resume its session.
    pub async fn replace(&self, stream: MessageStream) -> Result<(), ExecServerError> {
        let Ok(_replacing) = self.replacing.try_lock() else {
            let text = "an accepted exec-server replacement is already in progress";
            return Err(ExecServerError::Protocol(text.to_owned()));
        };
        let (taken, was_taken) = oneshot::channel();
        let mut state = self.client.connection_state();
        tokio::select! {
            biased;
            handed_over = self.hand_over(SocketOffer { stream, taken }, was_taken) => handed_over,
            failed = self.close_until_failed(&mut state) => Err(failed),
        }
    }

    async fn hand_over(&self, offer: SocketOffer, was_taken: oneshot::Receiver<()>) -> Result<(), ExecServerError> {
        self.sockets.send(offer).await.map_err(|_| ExecServerError::Closed)?;
        was_taken.await.map_err(|_| ExecServerError::Closed)
    }

    /// Closes the current connection now, and again after each change of the state: while the new socket waits, the
    /// client may still connect over an earlier socket. Returns the error when the client has failed.
    async fn close_until_failed(&self, state: &mut watch::Receiver<ConnectionState>) -> ExecServerError {
        loop {
            let failure = match &*state.borrow_and_update() {
                ConnectionState::Failed(text) => Some(text.clone()),
                ConnectionState::Connected | ConnectionState::Recovering(_) => None,
            };
            if let Some(text) = failure {
                return ExecServerError::Disconnected(text);
            }
            self.client.close_connection("exec-server connection replaced");
            if state.changed().await.is_err() {
                return ExecServerError::Closed;
            }
        }
    }
}

impl ServerConnector for AcceptedConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            let first = self.first.lock().take();
            if let Some(stream) = first {
                return Ok(stream.into());
            }
            let mut offers = self.offers.lock().await;
            loop {
                let offer = offers.recv().await.ok_or(ExecServerError::Closed)?;
                // If the caller of `replace` has dropped its future, the socket is not used.
                if offer.taken.send(()).is_ok() {
                    return Ok(offer.stream.into());
                }
            }
        })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        "accepted connection".to_owned()
    }
}
