//! The relay of the [`TestService`](super::TestService): which sockets there are, which stream belongs to which socket,
//! and what is passed on. It does no IO: [`Hub::route`] says what has to be sent where.

use std::collections::HashMap;

use bytes::Bytes;
use relay::{Frame, FrameBody, PEER_LOST};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::registry::HarnessGrant;
use super::script::{CapturedFrame, Direction, FrameFilter, Leg, RelayKind};

/// Messages that wait for one socket. A harness that takes none for longer loses its stream, and an executor makes its
/// harnesses wait.
pub(super) const MAX_WAITING_MESSAGES: usize = 512;

/// The reason of resets of a relay that plays the published one.
const ORDINARY_REASON: &str = "the other end is gone";

/// A message for the task of a socket.
pub(super) enum SocketMessage {
    Frame(Bytes),
    Pong(Bytes),
}

/// How the hub reaches a socket.
#[derive(Clone)]
pub(super) struct SocketHandle {
    pub(super) number: u64,
    pub(super) messages: mpsc::Sender<SocketMessage>,
    pub(super) cut: CancellationToken,
}

/// Whose socket it is.
#[derive(Clone, Debug)]
pub(super) enum SocketOwner {
    /// The executor with this registration id.
    Executor(String),
    Harness(HarnessGrant),
}

impl SocketOwner {
    pub(super) fn leg(&self) -> Leg {
        match self {
            Self::Executor(_) => Leg::Executor,
            Self::Harness(_) => Leg::Harness,
        }
    }

    fn registration_id(&self) -> &str {
        match self {
            Self::Executor(registration_id) => registration_id,
            Self::Harness(grant) => &grant.registration_id,
        }
    }
}

/// A stream that a harness has named.
struct BoundStream {
    harness_key: Value,
    /// None: the harness has lost its socket.
    socket: Option<SocketHandle>,
}

/// What a socket has to be sent.
pub(super) struct PassedMessage {
    pub(super) to: SocketHandle,
    pub(super) leg: Leg,
    pub(super) bytes: Bytes,
}

/// The state of the relay.
pub(super) struct Hub {
    kind: RelayKind,
    /// By registration id.
    executors: HashMap<String, SocketHandle>,
    /// The streams that harness sockets have named, by socket number. None: nothing was named yet.
    harnesses: HashMap<u64, (SocketHandle, Option<String>)>,
    /// By registration id and stream id.
    streams: HashMap<(String, String), BoundStream>,
    pub(super) paused: HashMap<Leg, watch::Sender<bool>>,
    pub(super) upgrades: HashMap<Leg, usize>,
    /// Status and `Retry-After` in seconds of the next refused upgrades.
    pub(super) refusals: HashMap<Leg, Vec<(u16, Option<u64>)>>,
    pub(super) cut_after_frames: HashMap<Leg, usize>,
    pub(super) filter: Option<FrameFilter>,
    pub(super) captured: Option<Vec<CapturedFrame>>,
    pub(super) violations: Vec<String>,
    last_number: u64,
}

impl Hub {
    pub(super) fn new(kind: RelayKind) -> Self {
        let paused = [Leg::Executor, Leg::Harness].map(|leg| (leg, watch::Sender::new(false))).into();
        Self {
            kind,
            executors: HashMap::new(),
            harnesses: HashMap::new(),
            streams: HashMap::new(),
            paused,
            upgrades: HashMap::new(),
            refusals: HashMap::new(),
            cut_after_frames: HashMap::new(),
            filter: None,
            captured: None,
            violations: Vec::new(),
            last_number: 0,
        }
    }

    pub(super) fn is_online(&self, registration_id: &str) -> bool {
        self.executors.contains_key(registration_id)
    }

    pub(super) fn sockets(&self, leg: Leg) -> Vec<SocketHandle> {
        match leg {
            Leg::Executor => self.executors.values().cloned().collect(),
            Leg::Harness => self.harnesses.values().map(|(socket, _)| socket.clone()).collect(),
        }
    }

    /// The status and the `Retry-After` with which the next upgrade on this leg is refused. None: it is not refused.
    pub(super) fn take_refusal(&mut self, leg: Leg) -> Option<(u16, Option<u64>)> {
        self.refusals.get_mut(&leg)?.pop()
    }

    /// Adds a socket. A second socket of an executor replaces the first one. `is_current` says whether a registration
    /// still counts: the executors of the others are cut off.
    pub(super) fn add_socket(
        &mut self,
        owner: &SocketOwner,
        is_current: impl Fn(&str) -> bool,
    ) -> (SocketHandle, mpsc::Receiver<SocketMessage>, watch::Receiver<bool>) {
        self.last_number += 1;
        let (messages, receiver) = mpsc::channel(MAX_WAITING_MESSAGES);
        let handle = SocketHandle { number: self.last_number, messages, cut: CancellationToken::new() };
        let leg = owner.leg();
        *self.upgrades.entry(leg).or_default() += 1;
        match owner {
            SocketOwner::Executor(registration_id) => {
                for (id, socket) in &self.executors {
                    if id == registration_id || !is_current(id) {
                        socket.cut.cancel();
                    }
                }
                self.executors.insert(registration_id.clone(), handle.clone());
            }
            SocketOwner::Harness(_) => {
                self.harnesses.insert(handle.number, (handle.clone(), None));
            }
        }
        (handle, receiver, self.paused[&leg].subscribe())
    }

    /// A message has arrived. Returns what has to be sent.
    pub(super) fn route(&mut self, owner: &SocketOwner, from: &SocketHandle, message: Bytes) -> Vec<PassedMessage> {
        let (leg, direction) = match owner {
            SocketOwner::Executor(_) => (Leg::Executor, Direction::ToHarness),
            SocketOwner::Harness(_) => (Leg::Harness, Direction::ToExecutor),
        };
        if let Some(captured) = &mut self.captured {
            captured.push(CapturedFrame { direction, bytes: message.clone() });
        }
        let frame = match Frame::decode(message.clone()) {
            Ok(frame) => frame,
            Err(error) => {
                self.violations.push(format!("{leg:?}: {error}"));
                return Vec::new();
            }
        };
        let target = match owner {
            SocketOwner::Executor(registration_id) => self.harness_of(registration_id, &frame),
            SocketOwner::Harness(grant) => match self.bind(grant, from, &frame) {
                Ok(()) => self.executors.get(&grant.registration_id).cloned(),
                Err(reset) => return vec![PassedMessage { to: from.clone(), leg: Leg::Harness, bytes: reset }],
            },
        };
        let passed_on = match &mut self.filter {
            Some(filter) => filter(direction, &message),
            None => vec![message],
        };
        if let Some(left) = self.cut_after_frames.get_mut(&leg) {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.cut_after_frames.remove(&leg);
                self.sockets(leg).iter().for_each(|socket| socket.cut.cancel());
            }
        }
        let Some(to) = target else { return Vec::new() };
        let leg = if leg == Leg::Executor { Leg::Harness } else { Leg::Executor };
        passed_on.into_iter().map(|bytes| PassedMessage { to: to.clone(), leg, bytes }).collect()
    }

    fn harness_of(&mut self, registration_id: &str, frame: &Frame) -> Option<SocketHandle> {
        let name = (registration_id.to_owned(), frame.stream_id.clone());
        let socket = self.streams.get(&name)?.socket.clone();
        if matches!(frame.body, FrameBody::Reset { .. }) {
            self.streams.remove(&name);
        }
        socket
    }

    /// The first frame of a socket names its stream. Later frames have to belong to it. `Err`: the reset for the harness.
    fn bind(&mut self, grant: &HarnessGrant, from: &SocketHandle, frame: &Frame) -> Result<(), Bytes> {
        let reset = || Bytes::from(reset_frame(&frame.stream_id, ORDINARY_REASON));
        let Some((_, named)) = self.harnesses.get_mut(&from.number) else { return Err(reset()) };
        match named {
            Some(named) if *named == frame.stream_id => {}
            Some(_) => {
                self.violations.push("a harness has used two streams on one socket".to_owned());
                return Err(reset());
            }
            None => {
                if !matches!(frame.body, FrameBody::Resume { .. }) {
                    self.violations.push("the first frame of a harness was no resume".to_owned());
                    return Err(reset());
                }
                *named = Some(frame.stream_id.clone());
                let name = (grant.registration_id.clone(), frame.stream_id.clone());
                if let Some(known) = self.streams.get(&name) {
                    if known.harness_key != grant.key {
                        self.violations.push("a harness has named the stream of another one".to_owned());
                        return Err(reset());
                    }
                    if let Some(old) = &known.socket {
                        old.cut.cancel();
                    }
                }
                let stream = BoundStream { harness_key: grant.key.clone(), socket: Some(from.clone()) };
                self.streams.insert(name, stream);
            }
        }
        if matches!(frame.body, FrameBody::Reset { .. }) {
            self.streams.remove(&(grant.registration_id.clone(), frame.stream_id.clone()));
        }
        Ok(())
    }

    /// A socket has ended. Returns what the other ends have to be told. `is_current` says whether the registration still
    /// counts; the streams of any other one are over.
    pub(super) fn remove_socket(
        &mut self,
        owner: &SocketOwner,
        lost: &SocketHandle,
        is_current: impl Fn(&str) -> bool,
    ) -> Vec<PassedMessage> {
        let registration_id = owner.registration_id().to_owned();
        let can_resume = self.kind == RelayKind::Ours && is_current(&registration_id);
        let reason = if can_resume { PEER_LOST } else { ORDINARY_REASON };
        let reset = |stream_id: &str| Bytes::from(reset_frame(stream_id, reason));
        match owner {
            SocketOwner::Executor(_) => {
                let is_replaced =
                    self.executors.get(&registration_id).is_some_and(|known| known.number != lost.number);
                if is_replaced && can_resume {
                    // The executor is back, and resumes its streams by itself.
                    return Vec::new();
                }
                if !is_replaced {
                    self.executors.remove(&registration_id);
                }
                let mut deliveries = Vec::new();
                for ((_, id), stream) in self.streams.iter().filter(|((known, _), _)| *known == registration_id) {
                    if let Some(to) = &stream.socket {
                        deliveries.push(PassedMessage { to: to.clone(), leg: Leg::Harness, bytes: reset(id) });
                    }
                }
                if !can_resume {
                    self.streams.retain(|(known, _), _| *known != registration_id);
                }
                deliveries
            }
            SocketOwner::Harness(_) => {
                let Some((_, Some(id))) = self.harnesses.remove(&lost.number) else { return Vec::new() };
                let name = (registration_id, id);
                let is_bound = |stream: &BoundStream| stream.socket.as_ref().is_some_and(|s| s.number == lost.number);
                let Some(stream) = self.streams.get_mut(&name).filter(|stream| is_bound(stream)) else {
                    return Vec::new();
                };
                stream.socket = None;
                if !can_resume {
                    self.streams.remove(&name);
                }
                let executor = self.executors.get(&name.0).cloned();
                let told = executor.map(|to| PassedMessage { to, leg: Leg::Executor, bytes: reset(&name.1) });
                told.into_iter().collect()
            }
        }
    }
}

fn reset_frame(stream_id: &str, reason: &str) -> Vec<u8> {
    Frame::new(stream_id, FrameBody::Reset { reason: reason.to_owned() }).encode()
}
