//! Makes HTTP requests from the machine of the exec-server. A header can get its value from an environment variable,
//! redirects are followed, proxies are used, and the body of a response is read no faster than the caller takes it,
//! apart from at most 1 MiB with HTTP/2. This crate knows nothing of JSON-RPC. Start with [`Fetcher`].
//!
//! HTTP/2 is used if a server chooses it in the TLS handshake, else HTTP/1.1. Dropping the future of a request, its
//! [`FetchResponse`] or its [`Body`] cancels the request: an HTTP/1.1 connection is then closed, and a stream of an
//! HTTP/2 connection is reset. An HTTP/1.1 connection has no task: the request that uses the connection reads and
//! writes. An HTTP/2 connection, which requests share, has a task, which the fetcher owns.

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
mod head_bounded_stream;
mod http1;
mod http2;
pub mod limits;
mod lookup;
mod message;
mod metered_stream;
mod no_proxy;
mod own_thread;
mod owner;
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
pub use lookup::Lookups;
pub use owner::RequestOwner;
pub use request::{FetchRequest, Header, Redirects};
pub use response::FetchResponse;
