//! The two ends of remote mode, without JSON-RPC. An executor registers with a service and connects to its relay; a
//! harness asks the service for a way to the executor and connects to the same relay. Between them runs an encrypted
//! stream, which both ends use as a [`transport::MessageStream`]. The service sees neither its bytes nor its keys.
//!
//! Start with [`Executor`] and [`Harness`]. The values that decide what frames, handshakes and records mean are in the
//! crate `relay`; this crate moves them: `relay_socket` serves one WebSocket, `outgoing` is the queue of a socket,
//! `relayed_stream` is one stream, shared by the tasks that use it, and `stream_io` makes a message stream of it.
//! `direct` is the path from a harness to an executor without the relay. `forwarding` passes the messages of an
//! executor to another server.

#![forbid(unsafe_code)]

mod asked_wait;
mod chance;
mod dial;
mod direct;
mod executor;
mod executor_log;
mod forwarding;
mod harness;
mod identity_file;
mod outgoing;
mod registry;
mod relay_socket;
mod relayed_stream;
mod service_access;
mod stream_io;
mod stream_timers;

pub use dial::DialError;
pub use direct::{ConnectionPath, DirectDoor, DirectEntrance, DirectListeners, DirectPolicy, UnknownDirectPolicy};
pub use executor::{Executor, ExecutorEvent, ExecutorHost, ExecutorSettings};
pub use executor_log::ExecutorLog;
pub use forwarding::{ForwardDestination, Forwarder};
pub use harness::{Harness, HarnessConnection, HarnessError, HarnessLink, HarnessSettings};
pub use identity_file::{IdentityFileError, load_or_create_identity};
pub use registry::{ConnectBundle, Registration, Registry, RegistryError, RegistrySettingsError};
pub use relay::{HandshakeFailure, RelayIdentity, RelayPublicKey};
pub use service_access::{ServiceAccess, ServiceAccessError};
