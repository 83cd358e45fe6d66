//! The limits of this crate, none of which a setting changes. The server lists them with all its other limits.

pub use crate::http1::{MAX_HEAD_BYTES, MAX_HEADERS};
pub use crate::lookup::{MAX_LOOKUPS, MAX_LOOKUPS_PER_CLIENT};
pub use crate::redirect::MAX_REDIRECTS;
