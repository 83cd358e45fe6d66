//! Every way to reach the server, who is let in, and how it ends.

mod addresses;
mod command_line;
mod http;
mod shutdown;
mod stdio;
mod tls;
mod tokens;
mod unix;
