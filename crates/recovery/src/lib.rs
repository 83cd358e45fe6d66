//! What a client does when its connection breaks, as values: no sockets, no tasks, no clock of their own.
//!
//! [`Link`] decides when to reconnect and when to give up. [`EventOrder`] puts the events of one process in order and fills what a
//! broken connection has swallowed. [`Completion`] follows a process to its end from what is pushed. [`LifeSigns`] says when a silent
//! connection counts as lost, [`WriteSize`] how much is written at once, and [`CallWindow`] how many
//! requests are sent at once. Time and chance are passed in.
#![forbid(unsafe_code)]

mod backoff;
mod call_window;
mod catch_up;
mod completion;
mod event;
mod life_signs;
mod link;
mod order;
mod write_size;

pub use backoff::{Backoff, Chance};
pub use call_window::CallWindow;
pub use catch_up::CatchUpError;
pub use completion::{Completion, Step};
pub use event::{Event, Exit};
pub use life_signs::{DEFAULT_SILENCE_TIMEOUT, LifeSigns, Silence};
pub use link::{Action, Admission, Generation, Link, LinkPolicy, Refusal, WhenRecovering};
pub use order::{EventOrder, OrderError, OrderLimits};
pub use write_size::WriteSize;
