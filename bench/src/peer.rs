//! A WebSocket server that sends every message back. It uses the transport of the product and runs in a process of
//! its own. It shows how long a round trip takes if the server does no work.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use transport::{
    Accepted, HttpSurface, ListenUrl, Listener, MessageLimits, MessageStream, Principal, ReadEvent, accept_messages,
};

/// If this is the first argument, this program is the echo server.
pub(crate) const ARGUMENT: &str = "--echo-peer";

/// A server that is this program, started once more. Dropping the value kills its process.
pub(crate) struct PeerProcess {
    child: Child,
    pub(crate) url: String,
}

impl PeerProcess {
    /// Starts the server that `argument` names. It prints its URL.
    pub(crate) fn start(argument: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(argument).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().context("the stdout of the server is missing")?).read_line(&mut url)?;
        Ok(Self { child, url: url.trim().to_owned() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}

/// Runs the echo server, on the same kind of runtime as the product.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let url: ListenUrl = "ws://127.0.0.1:0".parse()?;
        let listener = Listener::bind(&url, None).await?;
        println!("{}", listener.url());
        loop {
            // Warnings about connections that cannot be accepted are ignored.
            let socket = listener.accept(|_| {}).await?;
            let limits = MessageLimits { message_bytes: 64 << 20 };
            if let Some(Accepted::Client(accepted)) = accept_messages(socket, Arc::new(OpenSurface), limits).await? {
                tokio::spawn(echo(accepted.stream));
            }
        }
    })
}

async fn echo(stream: MessageStream) -> Result<()> {
    let MessageStream { mut reader, mut writer, framing, .. } = stream;
    let mut out = Vec::new();
    loop {
        match reader.next().await? {
            ReadEvent::Message(message) => {
                out.clear();
                framing.frame(&mut out, message.len(), |out| out.extend_from_slice(&message));
                writer.write_all(&out).await?;
            }
            ReadEvent::Closed(_) => return Ok(()),
            _ => {}
        }
    }
}

/// The echo server's decisions about HTTP requests: every connection is accepted without a token.
struct OpenSurface;

impl HttpSurface for OpenSurface {
    fn authorize(&self, _: &http::HeaderMap) -> Option<Principal> {
        Some(Principal::Anybody)
    }

    fn metrics(&self) -> String {
        String::new()
    }

    fn serves_host(&self, _: &str) -> bool {
        true
    }
}
