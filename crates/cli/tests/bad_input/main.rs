//! What broken and hostile clients get, and that nobody else pays for it.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod bystander;
mod envelope;
mod floods;
mod params;
mod sizes;
mod starts;
mod stdin;
mod vanishing;
