//! The limits of this crate that no setting changes. The server lists them with all its other limits.

pub use crate::changes::MAX_CHANGES_PER_MESSAGE;
pub use crate::log::MAX_RETAINED_CHUNKS;
pub use crate::receipts::MAX_WAITING_PINGS;
pub use crate::server_requests::MAX_SERVER_REQUESTS;
pub use crate::write_ids::MAX_REMEMBERED_WRITES;
