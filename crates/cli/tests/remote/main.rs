//! Remote mode as a person uses it: the real binary serves an environment (`exec-server --remote`), the real binary is
//! its client (`-e`), and the scripted service of `testkit` is between them.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod canary;
mod choosing;
mod commands;
mod cuts;
mod ending;
mod kept;
mod principals;
mod resuming;
mod support;
