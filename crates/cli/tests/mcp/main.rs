//! `mcp-stdio`: a real MCP server behind the bridge, and how the bridge ends.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ends;
mod published;
mod real_server;
mod support;
