//! The limits of this crate that no setting changes. A server lists them with all its other limits.

pub use crate::http::{MAX_HEADER_BYTES, REQUEST_TIMEOUT};
pub use crate::listener::BACKLOG as UNIX_BACKLOG;
