//! `port`: listens on ports of this machine, and forwards each connection to a port that the environment can reach. The
//! ports of this machine stay open while the connection to the environment is lost.

mod carry;
mod environment_link;
pub(crate) mod forward_spec;

use std::convert::Infallible;
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use client::ExecServerClient;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use self::carry::{CarryError, carry};
use self::environment_link::EnvironmentLink;
use self::forward_spec::ForwardSpec;
use super::args::PortArgs;
use super::capabilities::environment_info;
use super::destination::{Destination, leave};
use super::foreground::Goodbye;
use super::print::report;
use super::signals::Signals;
use crate::terminal_text::{readable, readable_beginning};

/// The pause after a connection could not be accepted, for example because no descriptor is left.
const PAUSE_AFTER_FAILED_ACCEPT: Duration = Duration::from_millis(100);

/// The longest reason of a failed connection that is printed, in characters. The server may have sent the reason, and only a
/// faulty or hostile server sends more.
const LONGEST_REASON: usize = 500;

/// A port of this machine that is forwarded.
struct Forward {
    spec: ForwardSpec,
    listener: TcpListener,
}

/// Forwards ports until a signal ends us.
pub(crate) async fn port(args: PortArgs) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::listen_except_stop()?;
    let destination = Destination::choose(&args.target)?;
    let name = destination.name.clone().unwrap_or_else(|| destination.address());
    let client = match signals.or_fatal(destination.clone().connect()).await {
        Ok(client) => client?,
        Err(fatal) => return Ok(ExitCode::from(fatal.exit_code())),
    };
    let prepared = match signals.or_fatal(prepare(&client, args.specs)).await {
        Ok(prepared) => prepared,
        Err(fatal) => {
            leave(client, Goodbye::InOrder).await;
            return Ok(ExitCode::from(fatal.exit_code()));
        }
    };
    let forwards = match prepared {
        Ok(forwards) => forwards,
        Err(error) => {
            leave(client, Goodbye::InOrder).await;
            return Err(error);
        }
    };
    for Forward { spec, listener } in &forwards {
        let line = format!("forwarding {} to {} of {name}", listener.local_addr()?, spec.target());
        crate::write_to_stderr(&format!("{}\n", readable(&line)));
    }
    let link = Arc::new(EnvironmentLink::new(destination, client));
    let mut listening = JoinSet::new();
    for forward in forwards {
        listening.spawn(accept(forward, Arc::clone(&link)));
    }
    let fatal = signals.next_fatal().await;
    listening.shutdown().await;
    leave(link.client(), Goodbye::InOrder).await;
    Ok(ExitCode::from(fatal.exit_code()))
}

/// Checks that the server can forward ports, and then begins to listen on every port, or on none.
async fn prepare(client: &ExecServerClient, specs: Vec<ForwardSpec>) -> anyhow::Result<Vec<Forward>> {
    let info = environment_info(client).await?;
    anyhow::ensure!(
        info.capabilities.port_forward,
        "the server cannot forward ports: it is an older exec-server, another program, or was started with --no-port-forward"
    );
    let mut forwards = Vec::new();
    for spec in specs {
        let listener = TcpListener::bind(spec.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", spec.listen))?;
        forwards.push(Forward { spec, listener });
    }
    Ok(forwards)
}

/// Accepts connections for ever. Dropping the future resets all of them.
async fn accept(Forward { spec, listener }: Forward, link: Arc<EnvironmentLink>) -> Infallible {
    let spec = Arc::new(spec);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let (spec, link) = (Arc::clone(&spec), Arc::clone(&link));
                    connections.spawn(async move {
                        if let Err(reason) = serve(socket, &spec, &link).await {
                            let reason = readable_beginning(&reason, LONGEST_REASON);
                            report(&format!("connection from {peer}: {reason}"));
                        }
                    });
                }
                Err(error) => {
                    report(&format!("cannot accept a connection on {}: {error}", spec.listen));
                    tokio::time::sleep(PAUSE_AFTER_FAILED_ACCEPT).await;
                }
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

/// Serves one connection. An error is a reason that the user of this command should know.
async fn serve(socket: TcpStream, spec: &ForwardSpec, link: &EnvironmentLink) -> Result<(), String> {
    prepare_socket(&socket).map_err(|error| error.to_string())?;
    let stream = tokio::select! {
        stream = link.connect_port(&spec.host, spec.port) => stream?,
        // The program on this machine has reset its connection, so it need not wait for the environment.
        _reset = socket.ready(Interest::ERROR) => return Ok(()),
    };
    match carry(&socket, stream).await {
        Ok(()) | Err(CarryError::Here) => Ok(()),
        Err(CarryError::There(reason)) => Err(reason),
    }
}

/// Sets the socket to reset its connection when it is dropped. A program must not mistake a broken connection for one that
/// has ended in order.
fn prepare_socket(socket: &TcpStream) -> io::Result<()> {
    socket.set_zero_linger()?;
    socket.set_nodelay(true)
}
