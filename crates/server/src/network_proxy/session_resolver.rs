//! Resolves host names for the proxies of a session, with the limits that also hold for its HTTP requests.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use fetch::{Lookups, RequestOwner};
use proxy::{BoxFuture, NameResolver};

/// The look-ups of one session.
pub(super) struct SessionResolver {
    pub(super) lookups: Arc<Lookups>,
    pub(super) owner: RequestOwner,
}

impl NameResolver for SessionResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(self.lookups.resolve(name, &self.owner))
    }
}
