//! The server's rules of a session, as values without sockets, tasks or a clock: the caller says what happened and what time it is.
//!
//! Start reading at [`Delivery`], the largest value: it holds the events of one process and how far each reader has
//! got. [`Attachment`] says which connection is attached to a session and when the session ends. [`ChangeLog`] holds
//! the messages about a watched directory. The other modules hold smaller rules: the closed processes that are kept,
//! the input of a process, receipts (proofs that a client has received output), requests that wait for an answer of the
//! client, signs of life of a connection, timers and limits.
#![forbid(unsafe_code)]

mod attachment;
mod changes;
mod delivery;
mod kept;
pub mod limits;
mod liveness;
mod log;
mod log_rate_limit;
mod pace;
mod receipts;
mod server_requests;
mod single_timer;
mod stdin;
mod write_ids;

pub use attachment::{Attachment, ConnectionNumber, Observer, SessionContents, StillAttached};
pub use changes::{ChangeLog, ChangeMessage};
pub use delivery::{
    Delivery, Departure, EventBatch, MemoryPressure, Polled, ReadAnswer, ReclaimStep, Reclaimed, Resend, StartedAs,
};
pub use kept::{KeptProcesses, UNSENT_CHECK_INTERVAL};
pub use liveness::PeerLiveness;
pub use log::{
    Acknowledged, CHUNK_OVERHEAD_BYTES, Chunk, EventLog, LogEvent, LogLimits, LoggedExit, Page, PartOfChunk,
};
pub use log_rate_limit::LogRateLimit;
pub use pace::Pace;
pub use receipts::Receipts;
pub use server_requests::{AnswerMatch, RequestRefused, ServerRequests};
pub use single_timer::SingleTimer;
pub use stdin::{OfferResult, StdinQueue};
pub use write_ids::WriteIds;
