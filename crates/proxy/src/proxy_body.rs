//! The body of a response to a program: a text of the proxy (which may be empty), or the body that the target sends.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use crate::joined_body::JoinedBody;
use crate::upstream::UpstreamBody;

/// A body that the proxy has made itself, or one from a target.
pub(crate) enum ProxyBody {
    Own(Full<Bytes>),
    /// Boxed because it is much larger than the other variant.
    Upstream(Box<JoinedBody<UpstreamBody>>),
}

impl ProxyBody {
    pub(crate) fn text(text: String) -> Self {
        Self::Own(Full::from(text))
    }

    pub(crate) fn empty() -> Self {
        Self::Own(Full::default())
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Own(body) => Pin::new(body).poll_frame(cx).map_err(|never| match never {}),
            Self::Upstream(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Upstream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Upstream(body) => body.size_hint(),
        }
    }
}
