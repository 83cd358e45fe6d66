//! The command `exec-server mcp-stdio`, called the bridge: it runs an MCP server on an exec-server, and passes its
//! own stdin to the MCP server and the output of the MCP server to its own stdout and stderr.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ends;
mod published;
mod real_server;
mod support;
