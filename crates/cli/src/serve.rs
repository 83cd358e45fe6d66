//! Serving: addresses on stdout, logs on stderr, and an orderly end on SIGTERM, Ctrl-C, the end of stdio, or when nobody
//! uses the server any more.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::Context as _;
use server::{Listen, Server, Tokens};
use tokio::signal::unix::{SignalKind, signal};
use transport::{ListenUrl, tls_acceptor};

use crate::GUARD_ARGUMENT;
use crate::args::Args;

/// Runs the server until it is told to stop.
pub(crate) fn serve(args: Args) -> anyhow::Result<()> {
    spawn::give_freed_memory_back();
    // What the parent left open is not for our children.
    spawn::seal_inherited_fds().context("cannot seal inherited file descriptors")?;
    start_log("warn");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start the runtime")?;
    let result = runtime.block_on(run(args));
    // A thread may still be waiting for stdin; nothing of ours is.
    runtime.shutdown_background();
    result
}

/// Logs to stderr what `RUST_LOG` asks for, or else this much.
pub(crate) fn start_log(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| usual.into());
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
}

async fn run(args: Args) -> anyhow::Result<()> {
    // Before anything is bound, so that a signal in the first instant is not fatal.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;

    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(tls_acceptor(cert, key)?),
        _ => None,
    };
    if tls.is_some() && !args.listen.iter().any(|url| matches!(url, ListenUrl::SecureWebSocket(_))) {
        anyhow::bail!("--tls-cert is given but no --listen is wss://; nothing would be encrypted");
    }
    let tokens = args.token_file.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
    let myself = std::env::current_exe().context("cannot find the path of this program")?;
    let config = server::Config { guard: Some((myself, vec![GUARD_ARGUMENT.to_owned()])), ..args.config() };
    let server = Server::new(config).context("cannot prepare to start processes")?;
    let only_stdio = args.listen.iter().all(|url| matches!(url, ListenUrl::Stdio));
    let listen = Listen { urls: args.listen, tls, tokens: tokens.clone(), insecure_no_auth: args.insecure_no_auth };
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
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut idle => break,
            _ = hangup.recv() => reload(tokens.as_deref()),
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
fn print_addresses(addresses: &[String]) -> std::io::Result<()> {
    // At once: whoever is content with the first line may be gone before a second one is written.
    let lines: String = addresses.iter().map(|address| format!("{address}\n")).collect();
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(lines.as_bytes())?;
    stdout.flush()
}

fn reload(tokens: Option<&Tokens>) {
    let Some(tokens) = tokens else { return };
    match tokens.reload() {
        Ok(()) => tracing::info!("tokens read again"),
        Err(error) => tracing::error!("keeping the old tokens: {error}"),
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
