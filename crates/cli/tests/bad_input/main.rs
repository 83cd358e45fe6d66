//! Broken and hostile clients, and the answers that they get. Other clients must not be affected, so most tests run a
//! second client (`OtherClient`).
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod envelope;
mod floods;
mod other_client;
mod params;
mod sizes;
mod starts;
mod stdin;
mod vanishing;
