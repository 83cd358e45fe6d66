//! The rules by which a client recovers from a broken connection, as values without sockets, tasks or a clock. The caller passes in the
//! time and the random numbers; the `client` crate has the tasks around these values.
//!
//! [`Reconnection`] decides when to reconnect and when to give up; start reading there. [`EventOrder`] puts the
//! events of one process in order and adds the events that a broken connection has lost. [`Completion`] follows a
//! process to its end from pushed events. [`LifeSigns`] decides when a silent connection counts as lost,
//! [`WriteSize`] how many bytes one write may carry, and [`CallWindow`] how many requests may be in flight at once.
#![forbid(unsafe_code)]

mod backoff;
mod call_window;
mod catch_up;
mod completion;
mod event;
mod life_signs;
mod order;
mod reconnection;
mod write_size;

pub use backoff::{Backoff, Chance};
pub use call_window::CallWindow;
pub use catch_up::CatchUpError;
pub use completion::{Completion, CompletionStep};
pub use event::{Event, Exit};
pub use life_signs::{DEFAULT_SILENCE_TIMEOUT, LifeSigns, Silence};
pub use order::{EventOrder, OrderError, OrderLimits};
pub use reconnection::{
    Action, CallAdmission, CallRefusal, Generation, ReconnectPolicy, Reconnection, WhenRecovering,
};
pub use write_size::WriteSize;
