//! What a test can tell a [`TestService`](super::TestService) to do, as values.

use bytes::Bytes;
use serde_json::Value;

/// A call of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// An executor announces itself.
    Register,
    /// A harness asks for a way to an executor.
    Connect,
    /// An executor asks whether a harness may use it.
    Validate,
}

impl Operation {
    pub(super) fn of_path(name: &str) -> Option<Self> {
        match name {
            "register" => Some(Self::Register),
            "connect" => Some(Self::Connect),
            "validate" => Some(Self::Validate),
            _ => None,
        }
    }
}

/// The sockets of one role. Faults that name a leg apply to all sockets of the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Leg {
    /// Between the service and executors.
    Executor,
    /// Between the service and harnesses.
    Harness,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From a harness to its executor.
    ToExecutor,
    /// From an executor to a harness.
    ToHarness,
}

/// How the relay tells an end that the other end has lost its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayKind {
    /// With the reason [`relay::PEER_LOST`]. The stream stays bound to its harness, which can come back.
    Ours,
    /// With an ordinary reset, as a relay of the published protocol. The stream is over.
    Reference,
}

/// What the registry does with a call instead of its work.
#[derive(Clone, Debug)]
pub enum RegistryAnswer {
    /// Answers with this status and this body.
    Status(u16, String),
    /// Answers with status 429 and this `Retry-After` in seconds.
    TooManyRequests(u64),
    /// Answers with status 200 and this JSON.
    Json(Value),
    /// Answers with status 302 and this `Location`.
    Redirect(String),
    /// Sends bytes that are not HTTP, and closes the connection.
    Garbage,
    /// Keeps the connection open and sends nothing.
    Hang,
    /// Closes the connection without an answer.
    Close,
    /// Sends the headers of a success and half of the body, and closes the connection.
    CutInBody,
    /// Sends the headers of a success and half of the body, and then nothing more.
    HangInBody,
}

/// A call that has arrived, whatever the answer was.
#[derive(Clone, Debug)]
pub struct RegistryCall {
    /// What was called.
    pub operation: Operation,
    /// The environment in the path.
    pub environment: String,
    /// The request line and the headers.
    pub head: String,
    /// The JSON of the request. `Null` if the body was not JSON.
    pub body: Value,
}

/// A frame that has arrived at the relay, as it came.
#[derive(Clone, Debug)]
pub struct CapturedFrame {
    /// Where the frame goes.
    pub direction: Direction,
    /// The binary message.
    pub bytes: Bytes,
}

/// Decides what the relay passes on instead of a frame: nothing, the frame, or several messages.
pub(super) type FrameFilter = Box<dyn FnMut(Direction, &Bytes) -> Vec<Bytes> + Send>;

/// Changes an honest answer of the registry.
pub(super) type AnswerAlteration = Box<dyn FnMut(&mut Value) + Send>;
