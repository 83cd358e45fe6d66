//! Processes: their record, their events, their handles.

pub(crate) mod entry;
mod event;
pub(crate) mod feed;
mod follow;
mod handle;
mod outcome;
mod read;
mod receiver;
mod start;
mod stdio;

pub use event::{ExecProcessEvent, ProcessOutputChunk};
pub use follow::ProcessEvents;
pub use handle::ExecProcess;
pub use outcome::{ExitStatus, ProcessOutput};
pub use receiver::{EventsLagged, ExecProcessEventReceiver};
pub use stdio::{ProcessReader, ProcessStdin};

pub(crate) use read::read;
pub(crate) use start::{attach, start};
