//! Processes of the environment (the machine of the server): starting them, their handles, their events as streams,
//! and their stdin. The state that the client keeps about a process is in `records`. Start with `start.rs` and
//! `handle.rs`.

mod follow;
mod handle;
mod read;
mod receiver;
mod start;
mod stdio;
mod write;

pub use follow::ProcessEvents;
pub use handle::ExecProcess;
pub use receiver::{EventsLagged, ExecProcessEventReceiver};
pub use stdio::{ProcessReader, ProcessStdin};

pub(crate) use read::read;
pub(crate) use start::{attach, start};
