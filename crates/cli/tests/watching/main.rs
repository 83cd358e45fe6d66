//! The method `fs/watch`: each change in a tree is reported once and in order, even if the client has to reconnect.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod changes;
mod lifetime;
mod overload;
mod reconnecting;
mod support;
