//! Runs the server that the command line describes.

use std::sync::Arc;

use anyhow::Context as _;
use exec_server::{
    ExecServerRuntimePaths, HostProcess, Listen, ListenUrl, ServeOptions, ServerConfig, Tokens, tls_acceptor,
};

use crate::args::Args;
use crate::log::ServerLog;
use crate::runtime::start_server_runtime;

/// Runs the server until a signal ends it, until it was idle for `--exit-when-idle`, or, if it serves only stdio,
/// until stdin ends.
pub(crate) fn serve(args: Args) -> anyhow::Result<()> {
    // The allocator gives freed memory above a fixed size back to the system.
    spawn::limit_kept_freed_memory();
    // The parent process may have blocked signals, and SIGTERM must end the server.
    spawn::unblock_signals();
    // This process has no other work, so the server may change all of it: limits, signals, who reaps orphans.
    let host = HostProcess::dedicate().context("cannot prepare this process for running commands")?;
    // The drop at the end of this function waits until the last lines are written.
    let _log = ServerLog::start("warn").context("cannot start the thread of the log")?;
    let runtime = start_server_runtime()?;
    let result = runtime.block_on(run(args, host));
    // A thread of tokio may still wait for stdin, which could take for ever. The program does not wait for it.
    runtime.shutdown_background();
    result
}

async fn run(args: Args, host: HostProcess) -> anyhow::Result<()> {
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(tls_acceptor(cert, key)?),
        _ => None,
    };
    if tls.is_some() && !args.listen.iter().any(|url| matches!(url, ListenUrl::SecureWebSocket(_))) {
        anyhow::bail!("--tls-cert is given but no --listen is wss://; nothing would be encrypted");
    }
    let remote = args.remote.environment()?;
    let tokens = args.token_file.as_deref().map(Tokens::load).transpose()?.map(Arc::new);
    let paths = ExecServerRuntimePaths::of_this_program().context("cannot find the path of this program")?;
    let config = ServerConfig {
        guard: paths.guard(),
        sandbox_launcher: paths.sandbox_launcher(),
        forwards_ports: !args.no_port_forward,
        ..args.limits.config
    };
    let listen = Listen {
        urls: args.listen,
        tls,
        tokens,
        insecure_no_auth: args.insecure_no_auth,
        allowed_hosts: args.allow_host,
    };
    let listen = (!listen.urls.is_empty()).then_some(listen);
    Ok(exec_server::serve_with(ServeOptions { config, host, listen, remote }).await?)
}
