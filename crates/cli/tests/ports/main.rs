//! Ports of an environment on this machine: the command `port`, and the methods `tcp/*` that it uses. A test calls a TCP server
//! in the environment the *target*, and the program that connects to a forwarded port the *visitor*.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod cleaning_up;
mod command_line;
mod flow;
mod hostile_clients;
mod reconnecting;
mod streams;
mod support;
mod through_relay;
