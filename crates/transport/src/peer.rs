//! A short name of the peer of a connection, for logs and error messages. It is no proof of identity, and it is not unique: every Unix
//! peer is called "unix".

use std::fmt;
use std::sync::Arc;

/// The name of a peer as people read it: its address, or the kind of connection. No decision may depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerLabel(Arc<str>);

impl PeerLabel {
    /// A label with this text.
    pub fn new(text: impl fmt::Display) -> Self {
        Self(text.to_string().into())
    }
}

impl fmt::Display for PeerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
