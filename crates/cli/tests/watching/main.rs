//! `fs/watch`: what changes in a tree is told in order, once, over as many connections as it takes.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod changes;
mod lifetime;
mod overload;
mod reconnecting;
mod support;
