//! `capabilityRoots/discoverV1`: several roots at once, each with its own failures, answered in the order of the request.

mod bundle;
mod scan;

use std::sync::Arc;

use files::Cancel;
use protocol::{CapabilityRoot, DiscoverParams, DiscoverResult, DiscoveredRoot, SandboxContext, WireError};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::connection::Call;
use crate::session::Session;

const MOST_ROOTS: usize = 128;
const ROOTS_AT_ONCE: usize = 8;
/// What stands around the roots in an answer, an id of the longest permitted length aside.
const AROUND_ROOTS_BYTES: usize = 64;

pub(super) fn discover(call: Call, params: DiscoverParams, session: Arc<Session>) {
    if params.roots.len() > MOST_ROOTS {
        let error = format!("capability root discovery accepts at most {MOST_ROOTS} roots");
        return call.finish::<()>(Err(WireError::invalid_request(error)));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let config = &call.connection.shared.config;
        let fits = config.max_message_bytes.saturating_sub(AROUND_ROOTS_BYTES + config.max_id_bytes);
        let room = call.connection.outbound.room_for_reply(bundle::BUNDLE_BYTES).await;
        if let Some(roots) = discover_all(params.roots, &session, fits).await {
            call.finish_covering(Ok(DiscoverResult { roots }), None, room);
        }
    });
}

/// None only while the server shuts down.
async fn discover_all(
    roots: Vec<CapabilityRoot>,
    session: &Arc<Session>,
    fits: usize,
) -> Option<Vec<DiscoveredRoot>> {
    let cancel = CancelOnDrop(Cancel::new());
    let room = Arc::new(bundle::Room::new(fits));
    let places = Arc::new(Semaphore::new(ROOTS_AT_ONCE));
    let mut running = JoinSet::new();
    for (number, root) in roots.into_iter().enumerate() {
        let (session, places, room) = (Arc::clone(session), Arc::clone(&places), Arc::clone(&room));
        let cancelled = cancel.0.clone();
        running.spawn(async move {
            let _place = places.acquire_owned().await.ok()?;
            let found = session.files.work.run(move || discover_one(root, &room, &cancelled)).await?;
            Some((number, found))
        });
    }
    let mut found = Vec::new();
    while let Some(one) = running.join_next().await {
        match one {
            Ok(one) => found.push(one?),
            Err(cancelled) if cancelled.is_cancelled() => return None,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    Some(found.into_iter().map(|(_, root)| root).collect())
}

fn discover_one(root: CapabilityRoot, room: &bundle::Room, cancel: &Cancel) -> DiscoveredRoot {
    let CapabilityRoot { id, path, sandbox } = root;
    let mut found = DiscoveredRoot {
        id,
        path,
        plugin: None,
        skills: Vec::new(),
        namespace_manifests: Vec::new(),
        warnings: Vec::new(),
        error: None,
    };
    if sandbox.as_ref().is_some_and(SandboxContext::restricts_files) {
        found.error = Some("filesystem sandbox cannot be enforced on this executor".to_owned());
        return found;
    }
    let scanned = found.path.to_native().map_err(|error| error.to_string()).and_then(|native| {
        let mut bundle = bundle::Bundle::new(room);
        let scanned = scan::scan(&native, &mut bundle, cancel);
        found.warnings = bundle.into_warnings();
        scanned.map_err(|error| error.to_string())
    });
    match scanned {
        Ok(scanned) => {
            found.plugin = scanned.plugin;
            found.skills = scanned.skills;
            found.namespace_manifests = scanned.namespace_manifests;
        }
        Err(error) => found.error = Some(error),
    }
    found
}

/// Ends the walks of a request that was dropped.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
