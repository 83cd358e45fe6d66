//! The response to a request, as the caller gets it. Start with [`FetchResponse`].

use std::fmt;

use http::HeaderMap;

use crate::body::Body;

/// The response to a request. A status of 400 and above is not an error.
pub struct FetchResponse {
    /// Status code, from 100 to 999.
    pub status: u16,
    /// Names and values. Names are in lower case, and headers with the same name are next to each other. A header
    /// whose value is not visible ASCII is left out.
    pub headers: Vec<(String, String)>,
    /// The bytes that the server sent. They are not decompressed.
    pub body: Body,
}

/// Shows only the status, because headers and bodies can hold secrets.
impl fmt::Debug for FetchResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The headers that the caller gets: those whose values are visible ASCII.
pub(crate) fn visible_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let visible = headers.iter().filter_map(|(name, value)| Some((name, value.to_str().ok()?)));
    visible.map(|(name, value)| (name.as_str().to_owned(), value.to_owned())).collect()
}
