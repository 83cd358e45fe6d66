//! The server: listeners, connections, dispatch and handlers.
//!
//! This crate joins the rules of the crate `session` with the system calls and sockets of the crates `spawn`,
//! `transport`, `files`, `fetch` and `proxy`. It starts the tokio tasks and waits for their end. Decisions that need no socket
//! and no clock belong in the crate `session`. Start reading at `server.rs`.
#![forbid(unsafe_code)]

mod blocking;
mod budget;
mod config;
mod connection;
mod connection_task;
mod environment;
mod executor;
mod files;
mod guard_watch;
mod handlers;
mod handshakes;
mod janitor;
mod janitor_task;
mod limits;
mod listen;
mod machine_check;
mod metrics;
mod network_proxy;
mod outbound;
mod placeholder_list;
mod port_stream;
mod presence;
mod process;
mod process_limits;
mod process_task;
mod proxy_connections;
mod refused_calls;
mod sandbox_policy;
mod sandboxes;
mod server;
mod server_state;
mod session;
mod snapshot;
mod start_cancel;
mod starter;
mod survive;
mod tokens;

pub use config::{ADJUSTABLE_LIMITS, Config, Limit, Minimum, limits_document};
pub use environment::CREDENTIAL_VARIABLES;
pub use limits::{FIXED_LIMITS, FixedLimit, LimitUnit, LimitValue};
pub use listen::{Listen, ListenError, RunningServer};
pub use machine_check::{EnforceablePolicies, MachineReport, check_machine};
pub use placeholder_list::clean_up_after_server;
pub use sandbox_policy::{SandboxRules, process_sandbox_rules};
pub use server::Server;
pub use tokens::{TokenError, TokenLineFault, Tokens};
