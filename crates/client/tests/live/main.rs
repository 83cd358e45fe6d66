//! The client against a real server.

mod basics;
mod support;
