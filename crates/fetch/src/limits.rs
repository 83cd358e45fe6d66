//! The limits of this crate that a user may want to know. No setting changes them. The exec-server lists them in
//! `docs/limits.md`, together with its other limits.

pub use crate::http1::{MAX_HEAD_BYTES, MAX_HEADERS};
pub use crate::http2::{MAX_STREAMS, MAX_UNREAD_BYTES};
pub use crate::lookup::{MAX_LOOKUPS, MAX_LOOKUPS_PER_CLIENT};
pub use crate::metered_stream::MAX_UNASKED_BYTES;
pub use crate::pool::MAX_IDLE_CONNECTIONS;
pub use crate::redirect::MAX_REDIRECTS;
