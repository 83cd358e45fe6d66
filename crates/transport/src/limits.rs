//! The limits of a listener that no setting changes. The server copies them into the list of all its limits.

pub use crate::http::{MAX_HEADER_BYTES, REQUEST_TIMEOUT};
pub use crate::listener::BACKLOG as UNIX_BACKLOG;
