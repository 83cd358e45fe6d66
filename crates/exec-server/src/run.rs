//! Serving: addresses on stdout, and an orderly end on SIGTERM, Ctrl-C or the end of stdio.

use std::io::{self, Write as _};
use std::sync::Arc;

use server::{Config, Listen, Server, Tokens};
use spawn::HostProcess;
use tokio::signal::unix::{Signal, SignalKind, signal};
use transport::{DEFAULT_LISTEN_URL, ListenUrl, ListenUrlError};

use crate::paths::ExecServerRuntimePaths;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be understood.
    #[error(transparent)]
    ListenUrl(#[from] ListenUrlError),
    /// It cannot be listened there.
    #[error(transparent)]
    Listen(#[from] server::ListenError),
    /// The operating system refused something.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves on [`DEFAULT_LISTEN_URL`] until the program is told to stop. The program is a server and nothing else from then on; see
/// [`run_main_with_listen_url`].
pub async fn run_main(paths: ExecServerRuntimePaths) -> Result<(), ServeError> {
    run_main_with_listen_url(DEFAULT_LISTEN_URL, paths).await
}

/// Serves on this address until the program is told to stop: `ws://IP:PORT`, `unix:///PATH` or `stdio`. The process is dedicated to the
/// server ([`HostProcess::dedicate`]) and its signals are handled as in [`serve`]. A program with other work makes a
/// [`Server`] instead.
pub async fn run_main_with_listen_url(listen_url: &str, paths: ExecServerRuntimePaths) -> Result<(), ServeError> {
    let config = Config { guard: paths.guard(), ..Config::default() };
    let urls = vec![listen_url.parse()?];
    let listen = Listen { urls, tls: None, tokens: None, insecure_no_auth: false, allowed_hosts: Vec::new() };
    serve(config, listen, HostProcess::dedicate()?).await
}

/// Serves until SIGTERM or SIGINT, until it has been idle for as long as the config says, or, if it only serves stdio, until that ends.
/// Prints a line on stdout for each address, unless stdout is what is served. SIGHUP reads the tokens again. These three signals are handled
/// for the whole process from then on.
pub async fn serve(config: Config, listen: Listen, host: HostProcess) -> Result<(), ServeError> {
    // Before anything is bound, so that a signal in the first instant is not fatal.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let hangup = signal(SignalKind::hangup())?;

    let server = Server::new(config, host)?;
    let only_stdio = listen.urls.iter().all(|url| matches!(url, ListenUrl::Stdio));
    let tokens: Option<Arc<Tokens>> = listen.tokens.clone();
    let running = server.listen(listen).await?;
    if running.stdio.is_none() {
        print_addresses(&running.addresses)?;
    } else {
        // Stdout belongs to the protocol.
        running.addresses.iter().for_each(|address| tracing::warn!("listening on {address}"));
    }

    let mut stdio = running.stdio;
    let idle = server.idle();
    tokio::pin!(idle);
    // Beside the other signals: a file system that hangs must not keep them from being heard.
    let reloads = reload_at_each_hangup(&server, tokens, hangup);
    tokio::pin!(reloads);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut idle => break,
            () = &mut reloads => {}
            () = ended(stdio.as_mut()) => {
                stdio = None;
                if only_stdio {
                    server.kill_everything().await;
                    return Ok(());
                }
            }
        }
    }
    tokio::select! {
        () = server.shut_down() => {}
        // Asked twice: no more grace.
        _ = terminate.recv() => server.kill_everything().await,
        _ = interrupt.recv() => server.kill_everything().await,
    }
    Ok(())
}

/// One line each, so that whoever started us knows where to connect.
fn print_addresses(addresses: &[String]) -> io::Result<()> {
    // At once: whoever is content with the first line may be gone before a second one is written.
    let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines.as_bytes())?;
    stdout.flush()
}

/// Never returns. Signals that come while the file is being read make it be read once more.
async fn reload_at_each_hangup(server: &Server, tokens: Option<Arc<Tokens>>, mut hangup: Signal) {
    loop {
        hangup.recv().await;
        let Some(tokens) = tokens.clone() else { continue };
        match server.reload_tokens(tokens).await {
            Some(Ok(())) => tracing::info!("tokens read again"),
            Some(Err(error)) => tracing::error!("keeping the old tokens: {error}"),
            None => {}
        }
    }
}

async fn ended(task: Option<&mut tokio::task::JoinHandle<()>>) {
    match task {
        Some(task) => {
            let _ = task.await;
        }
        None => std::future::pending().await,
    }
}
