//! What broken and hostile clients get, and that nobody else pays for it.

mod bystander;
mod envelope;
mod floods;
mod params;
mod sizes;
mod starts;
mod stdin;
mod vanishing;
