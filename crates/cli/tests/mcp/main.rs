//! The command `exec-server mcp-stdio`, called the bridge: it runs an MCP server on an exec-server and connects it to its own
//! stdin and stdout.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ends;
mod published;
mod real_server;
mod support;
