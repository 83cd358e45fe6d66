//! Remote mode: the server as the executor of an environment that no client can dial. Each harness that the service
//! admits becomes a connection like that of a local client. How harnesses arrive is in the crate `remote`.

use std::sync::Arc;

use remote::{Executor, ExecutorEvent, ExecutorHost, ExecutorLog, ExecutorSettings, RegistryError};
use transport::{AcceptedStream, MessageStream, Principal};

use crate::connection_task::serve;
use crate::limits::MAX_READ_AHEAD_BYTES;
use crate::metrics::Transport;
use crate::server::Server;
use crate::server_state::ServerState;

impl Server {
    /// Registers as the executor of an environment, and serves its harnesses until the server shuts down. A failure to register that may
    /// pass is retried, so this can take any time. Every other failure is returned. After an error nothing is served.
    pub async fn serve_harnesses(&self, settings: ExecutorSettings) -> Result<(), RegistryError> {
        let shared = &self.shared;
        let host = Arc::new(HarnessConnections { shared: Arc::clone(shared), log: ExecutorLog::default() });
        let registered = Executor::register(settings, host, shared.closing.clone()).await?;
        // None: the server shuts down.
        if let Some(executor) = registered {
            shared.direct_doors.lock().extend(executor.direct_door());
            let leaving = shared.leaving_relay.clone();
            shared.relay_tasks.spawn(executor.run(async move { leaving.cancelled().await }));
        }
        Ok(())
    }
}

/// Makes a connection of each stream of a harness.
struct HarnessConnections {
    shared: Arc<ServerState>,
    log: ExecutorLog,
}

impl ExecutorHost for HarnessConnections {
    fn serve(&self, mut stream: MessageStream, harness: &remote::RelayPublicKey) {
        let principal = Principal::Harness(harness.fingerprint().into());
        let shared = Arc::clone(&self.shared);
        let present = shared.presence.enter();
        self.shared.connections.spawn(async move {
            let _present = present;
            let admitted = async {
                let permits = Arc::clone(&shared.connection_permits);
                if let Ok(free) = Arc::clone(&permits).try_acquire_owned() {
                    return Some(free);
                }
                let _counted = shared.metrics.connection_waits();
                tokio::select! {
                    permit = permits.acquire_owned() => permit.ok(),
                    () = stream.reader.wait_for_end(MAX_READ_AHEAD_BYTES) => None,
                }
            };
            let Some(Some(_permit)) = shared.closing.run_until_cancelled(admitted).await else { return };
            Box::pin(serve(AcceptedStream { stream, principal }, Transport::relay, Arc::clone(&shared))).await;
        });
    }

    fn note(&self, event: ExecutorEvent<'_>) {
        let metrics = &self.shared.metrics.remote;
        // The metrics count every event, also those that the rate limit keeps out of the log.
        self.log.note(&event);
        match event {
            ExecutorEvent::Registered { failure, took } => metrics.registration_ended(failure.is_some(), took),
            ExecutorEvent::Dialled { failure, took } => metrics.relay_connect_ended(failure.is_some(), took),
            ExecutorEvent::Reconnects(reason) => metrics.reconnects(reason),
            ExecutorEvent::HarnessRefused { reason } => metrics.harness_refused(reason),
            ExecutorEvent::DirectPathUsed => self.shared.metrics.direct_path_used(),
            ExecutorEvent::DirectPathLeft => self.shared.metrics.direct_path_left(),
        }
    }
}
