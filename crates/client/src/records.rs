//! The records: the client's state of each process, watch, search and streamed HTTP body that it follows. A record takes the messages that
//! the server pushes, puts them in order, keeps a bounded number of them until they are read, and tells its caller what to do next. Records
//! send nothing and know no connection. Start with `process.rs`.

mod backlog;
mod begun_chunk;
mod bodies;
mod event;
mod exit_status;
mod feed;
mod network_policy;
mod ports;
mod process;
mod search;
mod watch;

pub use event::{ExecProcessEvent, ProcessOutputChunk};
pub use exit_status::{ExitStatus, ProcessOutput};
pub use network_policy::{DecidingNetwork, NetworkPolicyDecider};
pub use watch::Changes;

pub(crate) use backlog::{Backlog, BodyEnd, BodyNext};
pub(crate) use begun_chunk::BegunChunk;
pub(crate) use bodies::{BodyRecords, BodyRegistration};
pub(crate) use feed::{Feed, Received};
pub(crate) use network_policy::ProcessDecider;
pub(crate) use ports::{PORT_WINDOW_BYTES, PortRecord, PortRecords};
pub(crate) use process::{Consequence, ProcessProgress, ProcessRecord};
pub(crate) use search::{SearchRecord, SearchRecords};
pub(crate) use watch::{WatchRecord, WatchRecords};
