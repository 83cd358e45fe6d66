//! Runs a server until a signal, the end of stdin or a long idle time ends it. Prints the addresses of the server on
//! stdout. Start with [`serve`].

use std::io::{self, Write as _};
use std::sync::Arc;

use server::{Config, Listen, Server, Tokens};
use spawn::HostProcess;
use tokio::signal::unix::{Signal, SignalKind, signal};
use transport::{DEFAULT_LISTEN_URL, ListenUrl, ListenUrlError};

use crate::paths::ExecServerRuntimePaths;

/// The reason why a server could not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listen URL has a wrong form.
    #[error(transparent)]
    ListenUrl(#[from] ListenUrlError),
    /// The server could not listen: for example, an address could not be bound, or other machines could reach an
    /// address without a token.
    #[error(transparent)]
    Listen(#[from] server::ListenError),
    /// A call to the operating system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Serves on [`DEFAULT_LISTEN_URL`] until SIGTERM or SIGINT. The program must have no other work; see
/// [`run_main_with_listen_url`].
pub async fn run_main(paths: ExecServerRuntimePaths) -> Result<(), ServeError> {
    run_main_with_listen_url(DEFAULT_LISTEN_URL, paths).await
}

/// Serves on this URL until SIGTERM or SIGINT, or until stdin ends if the URL is `stdio`. Other URLs are
/// `ws://IP:PORT`, where the IP must be a loopback address, and `unix:///PATH`. The process is dedicated to the
/// server ([`HostProcess::dedicate`]), and its signals are handled as in [`serve`]. A program with other work makes a
/// [`Server`] instead.
pub async fn run_main_with_listen_url(listen_url: &str, paths: ExecServerRuntimePaths) -> Result<(), ServeError> {
    let config = Config { guard: paths.guard(), sandbox_launcher: paths.sandbox_launcher(), ..Config::default() };
    let urls = vec![listen_url.parse()?];
    let listen = Listen { urls, tls: None, tokens: None, insecure_no_auth: false, allowed_hosts: Vec::new() };
    serve(config, listen, HostProcess::dedicate()?).await
}

/// Serves until SIGTERM or SIGINT; until the server has had no connection and no session for the time
/// `exit_when_idle` of `config`; or, if it serves only stdio, until stdin ends. Prints one line on stdout for each
/// address, unless it serves stdio. After SIGHUP the server reads the file with the tokens of its clients again. The
/// three signals are caught for the whole process, and stay caught after this function has returned.
pub async fn serve(config: Config, listen: Listen, host: HostProcess) -> Result<(), ServeError> {
    // The signals are caught before the server listens, so that an early signal does not kill the program without a cleanup.
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
        // Stdout carries the protocol, so the addresses go to the log.
        running.addresses.iter().for_each(|address| tracing::warn!("listening on {address}"));
    }

    let mut stdio = running.stdio;
    let idle = server.idle();
    tokio::pin!(idle);
    // Reloading has a future of its own, so that a file system that hangs does not delay the other signals.
    let reloads = reload_at_each_hangup(&server, tokens, hangup);
    tokio::pin!(reloads);
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut idle => break,
            () = &mut reloads => {}
            () = wait_for_stdio_end(stdio.as_mut()) => {
                stdio = None;
                if only_stdio {
                    server.kill_everything().await;
                    server.end_sandboxes().await;
                    return Ok(());
                }
            }
        }
    }
    tokio::select! {
        () = server.shut_down() => {}
        // A second signal ends the grace period.
        _ = terminate.recv() => server.kill_everything().await,
        _ = interrupt.recv() => server.kill_everything().await,
    }
    Ok(())
}

/// Prints one line for each address, for the program that started the server.
fn print_addresses(addresses: &[String]) -> io::Result<()> {
    // All lines are printed in one write, because a reader that needs only the first line may close the pipe before a second write.
    let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines.as_bytes())?;
    stdout.flush()
}

/// Reads the token file again after each SIGHUP, if there is one. Never returns. If a signal comes while the file is
/// read, the file is read once more.
async fn reload_at_each_hangup(server: &Server, tokens: Option<Arc<Tokens>>, mut hangup: Signal) {
    loop {
        hangup.recv().await;
        let Some(tokens) = tokens.clone() else { continue };
        match server.reload_tokens(tokens).await {
            Some(Ok(())) => tracing::info!("tokens read again"),
            Some(Err(error)) => tracing::error!("keeping the old tokens: {error}"),
            // Reading the file has panicked. The old tokens stay valid.
            None => {}
        }
    }
}

/// Waits until the task of the stdio connection ends. Waits for ever if there is none.
async fn wait_for_stdio_end(task: Option<&mut tokio::task::JoinHandle<()>>) {
    match task {
        Some(task) => {
            let _ = task.await;
        }
        None => std::future::pending().await,
    }
}
