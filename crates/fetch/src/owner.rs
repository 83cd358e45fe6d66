//! The owner of requests. A program that makes requests for several parties gives each of them an owner, so that no
//! party can disturb the requests of another. This module does not know who the owners are.

use std::sync::Arc;

use crate::lookup::LookupAllowance;

/// The party for which requests are made. Requests of different owners never share a connection, and each owner has
/// its own limit for concurrent name look-ups. Clones are the same owner.
#[derive(Clone, Default)]
pub struct RequestOwner(Arc<LookupAllowance>);

impl RequestOwner {
    pub(crate) fn lookup_allowance(&self) -> &LookupAllowance {
        &self.0
    }
}

impl PartialEq for RequestOwner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
