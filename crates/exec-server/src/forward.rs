//! Remote mode without a server in this process: an executor that connects its harnesses to a server in another
//! process. Start with [`forward_remote_environment`].

use std::pin::pin;
use std::sync::Arc;

use remote::{Executor, ForwardDestination, Forwarder};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::remote_environment::RemoteEnvironmentConfig;
use crate::run::{RegisteredLine, ServeError, wait_for_stdin_end};

/// Registers as the executor of an environment and forwards each harness to another server, until SIGTERM or SIGINT, or
/// until stdin ends if the configuration says so. After this function has returned, the two signals still do not end
/// the process. If the destination cannot be reached, only the stream of that harness fails.
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
        // None: `closing` was cancelled before the registration succeeded.
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
        // After a second signal, nothing waits for the streams to end.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
