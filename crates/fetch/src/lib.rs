//! HTTP requests made from this machine: headers with values from its environment, redirects, proxies, and bodies that are
//! read no faster than somebody takes them. Knows nothing of JSON-RPC.
//!
//! Each request is driven by whoever waits for it: a connection has no task of its own, so dropping the future, the
//! [`FetchResponse`] or its [`Body`] ends everything about it. HTTP/1.1 only, which every server speaks.

#![forbid(unsafe_code)]

mod body;
mod connect;
mod cookies;
mod deadline;
mod endpoint;
mod environment;
mod error;
mod fetcher;
mod http1;
pub mod limits;
mod lookup;
mod no_proxy;
mod own_thread;
mod pool;
mod proxy;
mod redirect;
mod request;
mod response;
mod roots;
mod validate;

pub use body::Body;
pub use error::{FailureKind, FetchError};
pub use fetcher::{Fetcher, FetcherConfig};
pub use lookup::LookupAllowance;
pub use request::{FetchRequest, Header, Redirects};
pub use response::FetchResponse;
