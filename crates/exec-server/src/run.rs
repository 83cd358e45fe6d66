//! Runs a server until a signal, the end of stdin or a long idle time ends it. Prints the addresses of the server on
//! stdout. Start with [`serve`].

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use remote::{ExecutorSettings, RegistryError};
use server::{Config, Listen, Server, Tokens};
use spawn::HostProcess;
use tokio::io::AsyncReadExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use transport::{ConnectError, DEFAULT_LISTEN_URL, ListenUrl, ListenUrlError};

use crate::paths::ExecServerRuntimePaths;
use crate::remote_environment::{RemoteEnvironmentConfig, RemoteEnvironmentError};

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
    /// The configuration of the remote environment cannot be used.
    #[error(transparent)]
    RemoteEnvironment(#[from] RemoteEnvironmentError),
    /// The service does not accept this executor.
    #[error(transparent)]
    Registration(#[from] RegistryError),
    /// Streams cannot be forwarded, because the URL of the destination cannot be used.
    #[error(transparent)]
    Destination(#[from] ConnectError),
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

/// What a program serves, and when the server ends.
pub struct ServeOptions {
    /// The settings of the server.
    pub config: Config,
    /// What the server may change in this process.
    pub host: HostProcess,
    /// The addresses on which the server listens. `None`: it serves only a remote environment.
    pub listen: Option<Listen>,
    /// The environment that the server serves through a service. `None`: it serves only the clients that connect to it.
    pub remote: Option<RemoteEnvironmentConfig>,
}

impl ServeOptions {
    /// Serves nobody yet.
    pub fn new(config: Config, host: HostProcess) -> Self {
        Self { config, host, listen: None, remote: None }
    }
}

/// Serves the clients of `listen`, as [`serve_with`] does.
pub async fn serve(config: Config, listen: Listen, host: HostProcess) -> Result<(), ServeError> {
    serve_with(ServeOptions { listen: Some(listen), ..ServeOptions::new(config, host) }).await
}

/// Serves until SIGTERM or SIGINT; until the server has had no connection and no session for the time
/// `exit_when_idle` of the configuration; if it serves only stdio, until stdin ends; or, if the remote environment says so, until stdin
/// ends. Prints one line on stdout for each address, unless it serves stdio. After SIGHUP the server reads the file
/// with the tokens of its clients again. The three signals are caught for the whole process, and stay caught after
/// this function has returned.
pub async fn serve_with(options: ServeOptions) -> Result<(), ServeError> {
    // The signals are caught before the server listens, so that an early signal does not kill the program without a cleanup.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let hangup = signal(SignalKind::hangup())?;

    let ServeOptions { config, host, listen, remote } = options;
    let mut executor = remote.as_ref().map(RemoteEnvironmentConfig::executor_settings).transpose()?;
    let server = Server::new(config, host)?;
    let urls = listen.as_ref().map(|listen| listen.urls.as_slice()).unwrap_or_default();
    let only_stdio = executor.is_none() && urls.iter().all(|url| matches!(url, ListenUrl::Stdio));
    let tokens: Option<Arc<Tokens>> = listen.as_ref().and_then(|listen| listen.tokens.clone());
    let mut stdio = None;
    if let Some(listen) = listen {
        let running = server.listen(listen).await?;
        if let Some(executor) = &mut executor {
            executor.direct.addresses = running.addresses.iter().filter_map(|url| direct_address(url)).collect();
        }
        if running.stdio.is_none() {
            print_addresses(&running.addresses)?;
        } else {
            // Stdout carries the protocol, so the addresses go to the log.
            running.addresses.iter().for_each(|address| tracing::warn!("listening on {address}"));
        }
        stdio = running.stdio;
    }

    let mut idle = pin!(server.idle());
    // Reloading has a future of its own, so that a file system that hangs does not delay the other signals.
    let mut reloads = pin!(reload_at_each_hangup(&server, tokens, hangup));
    // Local clients are served while the service cannot be reached.
    let mut registration = pin!(serve_remote_environment(&server, executor));
    let mut stdin_end = pin!(wait_for_stdin_end(remote.is_some_and(|remote| remote.exit_on_stdin_close)));
    let mut failure = None;
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = &mut idle => break,
            () = &mut stdin_end => break,
            () = &mut reloads => {}
            error = &mut registration => {
                failure = Some(error);
                break;
            }
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
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// The address of a listener that can serve a direct path, or `None`. Only a TCP listener without TLS can: the stream
/// has its own encryption, so harnesses connect without TLS.
fn direct_address(url: &str) -> Option<SocketAddr> {
    match url.parse() {
        Ok(ListenUrl::WebSocket(address)) => Some(address),
        Ok(ListenUrl::SecureWebSocket(_) | ListenUrl::Unix(_) | ListenUrl::Stdio) | Err(_) => None,
    }
}

/// Registers the executor, which serves harnesses from then on. Returns only an error that another attempt would not
/// mend.
async fn serve_remote_environment(server: &Server, executor: Option<ExecutorSettings>) -> RegistryError {
    if let Some(settings) = executor {
        let registered = RegisteredLine::of(&settings);
        if let Err(error) = server.serve_harnesses(settings).await {
            return error;
        }
        registered.print();
    }
    std::future::pending().await
}

/// The line that an executor prints after its registration: the environment, its service, and the key that clients can
/// pin.
pub(crate) struct RegisteredLine(String);

impl RegisteredLine {
    pub(crate) fn of(settings: &ExecutorSettings) -> Self {
        let (registry, key) = (&settings.registry, settings.identity.public_key().fingerprint());
        Self(format!("registered as {} at {}, key {key}\n", registry.environment_id(), registry.service()))
    }

    /// Writes the line to stderr, because other programs read addresses from stdout.
    pub(crate) fn print(&self) {
        write_to_stderr(&self.0);
    }
}

/// Waits until stdin has ended, and ignores what it carries. Waits for ever if `is_wanted` is false.
pub(crate) async fn wait_for_stdin_end(is_wanted: bool) {
    if !is_wanted {
        return std::future::pending().await;
    }
    let mut ignored = [0; 4096];
    let mut stdin = tokio::io::stdin();
    while stdin.read(&mut ignored).await.is_ok_and(|count| count > 0) {}
}

/// An error is ignored: there is no other place to report it.
fn write_to_stderr(text: &str) {
    let _unreportable_error = io::stderr().write_all(text.as_bytes());
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
