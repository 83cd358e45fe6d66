//! How the server answers broken and hostile clients, and that other clients do not notice them.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod bystander;
mod envelope;
mod floods;
mod params;
mod sizes;
mod starts;
mod stdin;
mod vanishing;
