//! What the client remembers of the things it follows: processes, watches, searches and streamed HTTP bodies. A record takes what the
//! server pushes, puts it in order, keeps it within a bound until it is read, and says what has to be done next. Records send nothing
//! and know no connection. Start with `process.rs`.

mod backlog;
mod begun_chunk;
mod bodies;
mod event;
mod feed;
mod process;
mod search;
mod watch;

pub use event::{ExecProcessEvent, ProcessOutputChunk};
pub use watch::Changes;

pub(crate) use backlog::{Backlog, BodyEnd, BodyNext};
pub(crate) use begun_chunk::BegunChunk;
pub(crate) use bodies::{BodyRecords, BodyRegistration};
pub(crate) use feed::{Feed, Received};
pub(crate) use process::{Consequence, ProcessProgress, ProcessRecord};
pub(crate) use search::{SearchRecord, SearchRecords};
pub(crate) use watch::{WatchRecord, WatchRecords};
