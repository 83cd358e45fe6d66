//! What was answered.

use std::fmt;

use http::HeaderMap;

use crate::body::Body;

/// What was answered. A status of 400 and above is an answer like any other.
pub struct FetchResponse {
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, repeated ones together. Values that are not visible ASCII are left out.
    pub headers: Vec<(String, String)>,
    /// As it was sent: nothing is decompressed.
    pub body: Body,
}

/// Without the headers, which hold secrets.
impl fmt::Debug for FetchResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

pub(crate) fn visible(headers: &HeaderMap) -> Vec<(String, String)> {
    let visible = headers.iter().filter_map(|(name, value)| Some((name, value.to_str().ok()?)));
    visible.map(|(name, value)| (name.as_str().to_owned(), value.to_owned())).collect()
}
