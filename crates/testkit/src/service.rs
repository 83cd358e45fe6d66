//! A service for remote mode on one loopback port: a registry and a relay, small and strict, that do what a test tells
//! them. Tests use it for behaviour that a real service shows only rarely or never: answers that are wrong or late,
//! sockets that are cut at a certain frame, and frames that are lost, repeated, altered or mixed up. Start with
//! [`TestService::start`].
//!
//! For cuts after a number of bytes, put a [`CuttingProxy`](crate::CuttingProxy) before a leg with
//! [`TestService::route_through`]. For ends that behave as the published implementation does, see [`ReferenceHarness`]
//! and [`ReferenceExecutor`].

mod connection;
mod hub;
mod reference_executor;
mod reference_harness;
mod reference_stream;
mod registry;
mod registry_client;
mod script;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use reference_executor::ReferenceExecutor;
pub use reference_harness::{ReferenceFailure, ReferenceHarness};
pub use script::{CapturedFrame, Direction, Leg, Operation, RegistryAnswer, RegistryCall, RelayKind};

use hub::{Hub, PassedMessage, SocketHandle, SocketMessage, SocketOwner};
use registry::ScriptedRegistry;

/// Begins the path of every call.
const PREFIX: &str = "/prefix";

/// A scripted registry and relay. Dropping it ends all its connections.
pub struct TestService {
    address: String,
    state: Arc<ServiceState>,
    closing: CancellationToken,
}

/// What all connections share.
struct ServiceState {
    registry: Mutex<ScriptedRegistry>,
    hub: Mutex<Hub>,
}

impl TestService {
    /// The token that the registry accepts at first.
    pub const TOKEN: &str = "token-of-the-test";

    /// Starts a service that behaves as ours.
    pub async fn start() -> Self {
        Self::start_as(RelayKind::Ours).await
    }

    /// Starts a service with a relay of this kind.
    pub async fn start_as(kind: RelayKind) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let registry = Mutex::new(ScriptedRegistry::new(&address, Self::TOKEN));
        let state = Arc::new(ServiceState { registry, hub: Mutex::new(Hub::new(kind)) });
        let closing = CancellationToken::new();
        tokio::spawn({
            let (state, closing) = (Arc::clone(&state), closing.clone());
            let accepting = closing.clone();
            accepting.run_until_cancelled_owned(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(
                        closing.clone().run_until_cancelled_owned(connection::serve(Arc::clone(&state), stream)),
                    );
                }
            })
        });
        Self { address, state, closing }
    }

    /// The base URL of the registry.
    pub fn url(&self) -> String {
        format!("http://{}{PREFIX}", self.address)
    }

    /// `IP:PORT` of registry and relay.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The registry accepts only this token from now on.
    pub fn set_token(&self, token: &str) {
        self.registry().token = token.to_owned();
    }

    /// The next calls of an operation get this answer.
    pub fn answer_next(&self, operation: Operation, times: usize, answer: RegistryAnswer) {
        self.registry().add_answers(operation, times, &answer);
    }

    /// Calls of an operation get honest answers again.
    pub fn answer_honestly(&self, operation: Operation) {
        self.registry().forget_answers(operation);
    }

    /// Changes every successful answer to an operation from now on.
    pub fn alter_answers(&self, operation: Operation, alteration: impl FnMut(&mut Value) + Send + 'static) {
        self.registry().alter(operation, Box::new(alteration));
    }

    /// The calls that have come, in their order.
    pub fn calls(&self) -> Vec<RegistryCall> {
        self.registry().calls().to_vec()
    }

    /// How many calls of an operation have come.
    pub fn count(&self, operation: Operation) -> usize {
        self.registry().calls().iter().filter(|call| call.operation == operation).count()
    }

    /// The URLs of this leg that the registry gives from now on lead to this address, for example that of a proxy.
    pub fn route_through(&self, leg: Leg, address: &str) {
        self.registry().addresses.insert(leg, address.to_owned());
    }

    /// The relay accepts no URL of this leg that was given out so far.
    pub fn expire_urls(&self, leg: Leg) {
        self.registry().expire_urls(leg);
    }

    /// The relay refuses the next upgrades on this leg with this status.
    pub fn refuse_upgrades(&self, leg: Leg, times: usize, status: u16) {
        self.hub().refusals.entry(leg).or_default().extend(std::iter::repeat_n((status, None), times));
    }

    /// The relay answers the next upgrade on this leg with status 429 and this `Retry-After`.
    pub fn put_off_upgrade(&self, leg: Leg, seconds: u64) {
        self.hub().refusals.entry(leg).or_default().push((429, Some(seconds)));
    }

    /// The relay accepts upgrades again.
    pub fn accept_upgrades(&self, leg: Leg) {
        self.hub().refusals.remove(&leg);
    }

    /// How many sockets this leg has had.
    pub fn upgrades(&self, leg: Leg) -> usize {
        self.hub().upgrades.get(&leg).copied().unwrap_or_default()
    }

    /// How many sockets this leg has now.
    pub fn connected(&self, leg: Leg) -> usize {
        self.hub().sockets(leg).len()
    }

    /// Waits until this leg has had so many sockets.
    pub async fn wait_for_upgrades(&self, leg: Leg, count: usize) {
        let what = format!("{count} sockets of {leg:?}");
        crate::eventually(&what, || (self.upgrades(leg) >= count).then_some(())).await;
    }

    /// Closes all sockets of this leg.
    pub fn cut(&self, leg: Leg) {
        self.hub().sockets(leg).iter().for_each(|socket| socket.cut.cancel());
    }

    /// Closes all sockets of this leg after so many further frames have come from it.
    pub fn cut_after_frames(&self, leg: Leg, frames: usize) {
        self.hub().cut_after_frames.insert(leg, frames);
    }

    /// The relay reads nothing from this leg any more, and so answers no pings, until [`TestService::read_again`].
    pub fn stop_reading(&self, leg: Leg) {
        self.hub().paused[&leg].send_replace(true);
    }

    /// The relay reads from this leg again after [`TestService::stop_reading`], beginning with what waits in the kernel.
    pub fn read_again(&self, leg: Leg) {
        self.hub().paused[&leg].send_replace(false);
    }

    /// Decides what is passed on instead of each frame: an empty vector drops the frame. The messages go to the end to
    /// which the frame belongs, whatever they hold. A closure that keeps frames can delay and reorder them.
    pub fn filter_frames(&self, filter: impl FnMut(Direction, &Bytes) -> Vec<Bytes> + Send + 'static) {
        self.hub().filter = Some(Box::new(filter));
    }

    /// Passes on all frames as they are again.
    pub fn pass_all_frames(&self) {
        self.hub().filter = None;
    }

    /// Sends a message to all sockets of this leg.
    pub fn inject(&self, leg: Leg, message: impl Into<Bytes>) {
        let message = message.into();
        for socket in self.hub().sockets(leg) {
            socket.messages.try_send(SocketMessage::Frame(message.clone())).unwrap();
        }
    }

    /// Sends messages to all sockets of this leg. Waits whenever a socket takes no more.
    pub async fn inject_all(&self, leg: Leg, messages: impl IntoIterator<Item = Bytes>) {
        let sockets = self.hub().sockets(leg);
        for message in messages {
            for socket in &sockets {
                let _socket_may_be_gone = socket.messages.send(SocketMessage::Frame(message.clone())).await;
            }
        }
    }

    /// Keeps a copy of each frame that comes from now on.
    pub fn capture(&self) {
        self.hub().captured = Some(Vec::new());
    }

    /// The frames since [`TestService::capture`].
    pub fn captured(&self) -> Vec<CapturedFrame> {
        self.hub().captured.clone().unwrap_or_default()
    }

    /// What ends have done that the protocol does not allow.
    pub fn violations(&self) -> Vec<String> {
        self.hub().violations.clone()
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, ScriptedRegistry> {
        self.state.registry.lock().unwrap()
    }

    fn hub(&self) -> std::sync::MutexGuard<'_, Hub> {
        self.state.hub.lock().unwrap()
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl ServiceState {
    fn call(&self, call: RegistryCall) -> RegistryAnswer {
        let hub = self.hub.lock().unwrap();
        self.registry.lock().unwrap().call(call, |registration_id| hub.is_online(registration_id))
    }

    /// The owner of the URL with this secret. An error holds the status of the refusal and its `Retry-After` in
    /// seconds.
    fn admit(&self, leg: Leg, secret: &str) -> Result<SocketOwner, (u16, Option<u64>)> {
        if let Some(refusal) = self.hub.lock().unwrap().take_refusal(leg) {
            return Err(refusal);
        }
        let registry = self.registry.lock().unwrap();
        match leg {
            Leg::Executor => registry.registration_of(secret).map(SocketOwner::Executor).ok_or((403, None)),
            Leg::Harness => registry.grant_of(secret).map(SocketOwner::Harness).ok_or((401, None)),
        }
    }

    fn add_socket(
        &self,
        owner: &SocketOwner,
    ) -> (SocketHandle, mpsc::Receiver<SocketMessage>, watch::Receiver<bool>) {
        let mut hub = self.hub.lock().unwrap();
        let registry = self.registry.lock().unwrap();
        hub.add_socket(owner, |registration_id| registry.is_current(registration_id))
    }

    fn route(&self, owner: &SocketOwner, from: &SocketHandle, message: Bytes) -> Vec<PassedMessage> {
        self.hub.lock().unwrap().route(owner, from, message)
    }

    fn remove_socket(&self, owner: &SocketOwner, lost: &SocketHandle) -> Vec<PassedMessage> {
        let mut hub = self.hub.lock().unwrap();
        let registry = self.registry.lock().unwrap();
        hub.remove_socket(owner, lost, |registration_id| registry.is_current(registration_id))
    }

    fn note_violation(&self, violation: String) {
        self.hub.lock().unwrap().violations.push(violation);
    }

    /// A harness does not take its messages. Its socket is closed, because a lost frame would not be noticed otherwise.
    fn note_slow_harness(&self, harness: &SocketHandle) {
        self.note_violation("a harness takes its messages too slowly".to_owned());
        harness.cut.cancel();
    }
}
