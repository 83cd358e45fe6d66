//! `fs/watch`: changes in a tree are reported in order and once, over as many connections as needed.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod changes;
mod lifetime;
mod overload;
mod reconnecting;
mod support;
