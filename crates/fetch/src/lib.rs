//! HTTP requests made from this machine: headers with values from its environment, redirects, proxies, and bodies that are
//! read no faster than somebody takes them. Knows nothing of JSON-RPC. Start with [`Fetcher`].
//!
//! HTTP/2 is used if a server chooses it in the TLS handshake, else HTTP/1.1. Dropping the future of a request, its [`FetchResponse`] or its
//! [`Body`] cancels the request: an HTTP/1.1 connection is then closed, and a stream of an HTTP/2 connection is reset. An HTTP/1.1 connection
//! has no task and moves only while somebody waits for it. An HTTP/2 connection has a task, which belongs to the fetcher.

#![forbid(unsafe_code)]

mod body;
mod connect;
mod cookies;
mod deadline;
mod endpoint;
mod environment;
mod error;
mod exchange;
mod fetcher;
mod http1;
mod http2;
pub mod limits;
mod lookup;
mod message;
mod metered_stream;
mod no_proxy;
mod own_thread;
mod pool;
mod proxy;
mod redirect;
mod request;
mod request_body;
mod response;
mod roots;
mod validate;

pub use body::Body;
pub use error::{FailureKind, FetchError};
pub use fetcher::{Fetcher, FetcherConfig};
pub use lookup::LookupAllowance;
pub use request::{FetchRequest, Header, Redirects};
pub use response::FetchResponse;
