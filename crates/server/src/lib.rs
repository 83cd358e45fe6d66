//! The server: listeners, connections, dispatch and handlers.
//!
//! A shell around rules (`session`) and mechanisms (`spawn`, `transport`): it starts and joins the tasks, and holds
//! as few decisions of its own as it can.
#![forbid(unsafe_code)]

mod blocking;
mod budget;
mod config;
mod connection;
mod connection_task;
mod environment;
mod files;
mod guard_watch;
mod handlers;
mod handshakes;
mod janitor;
mod janitor_task;
mod limits;
mod listen;
mod metrics;
mod outbound;
mod presence;
mod process;
mod process_task;
mod server;
mod server_state;
mod session;
mod snapshot;
mod start_cancel;
mod starter;
mod survive;
mod tokens;

pub use config::{ADJUSTABLE_LIMITS, Config, Limit, Minimum, limits_document};
pub use limits::{FIXED_LIMITS, FixedLimit, LimitUnit, Quantity};
pub use listen::{Listen, ListenError, Running};
pub use server::Server;
pub use tokens::{TokenError, TokenLineFault, Tokens};
