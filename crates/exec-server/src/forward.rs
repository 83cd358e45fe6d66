//! Remote mode without a server in this process: an executor whose harnesses use a server that runs elsewhere. Start with
//! [`forward_remote_environment`].

use std::pin::pin;
use std::sync::Arc;

use remote::{Executor, ForwardDestination, Forwarder};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::remote_environment::RemoteEnvironmentConfig;
use crate::run::{RegisteredLine, ServeError, wait_for_stdin_end};

/// Registers as the executor of an environment and forwards each harness to another server, until SIGTERM or SIGINT, or
/// until stdin ends if the configuration says so. Both signals stay caught after this function has returned. A destination
/// that cannot be reached fails single streams, never this function.
pub async fn forward_remote_environment(
    config: RemoteEnvironmentConfig,
    destination: ForwardDestination,
) -> Result<(), ServeError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let forwarder = Forwarder::new(destination)?;
    let settings = config.executor_settings()?;
    let registered = RegisteredLine::of(&settings);
    let closing = CancellationToken::new();
    let mut stdin_end = pin!(wait_for_stdin_end(config.exit_on_stdin_close));
    let mut executing = pin!(async {
        let host = Arc::new(forwarder.clone());
        // None: it was cancelled.
        if let Some(executor) = Executor::register(settings, host, closing.clone()).await? {
            registered.print();
            executor
                .run(async {
                    closing.cancelled().await;
                    forwarder.leave().await;
                })
                .await;
        }
        Ok(())
    });
    tokio::select! {
        ended = &mut executing => return ended,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = &mut stdin_end => {}
    }
    closing.cancel();
    tokio::select! {
        ended = &mut executing => ended,
        // A second signal does not wait for slow ends.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
