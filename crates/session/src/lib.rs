//! The rules of a session on the server's side: what a process said, who may hear it, and for how long.
//!
//! Values without sockets, tasks or a clock: the caller says what happened and what time it is.
#![forbid(unsafe_code)]

mod attachment;
mod changes;
mod delivery;
mod kept;
mod liveness;
mod log;
mod log_bound;
mod look;
mod pace;
mod receipts;
mod stdin;
mod write_ids;

pub use attachment::{Attachment, ConnectionNumber, Contents, Observer, StillAttached};
pub use changes::{ChangeLog, Told};
pub use delivery::{
    Batch, Delivery, Departure, MemoryPressure, Polled, ReadAnswer, ReclaimStep, Reclaimed, Resend, StartedAs,
};
pub use kept::KeptProcesses;
pub use liveness::PeerLiveness;
pub use log::{Acknowledged, CHUNK_OVERHEAD_BYTES, Chunk, Event, EventLog, Exit, LogLimits, Page, PartOfChunk};
pub use log_bound::LogBound;
pub use look::NextLook;
pub use pace::Pace;
pub use receipts::Receipts;
pub use stdin::{Offer, StdinQueue};
pub use write_ids::WriteIds;
