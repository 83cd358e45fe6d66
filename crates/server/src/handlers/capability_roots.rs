//! `capabilityRoots/discoverV1`: returns the plugins and skills in directories of this machine, the capability roots. Several roots are read
//! at once. An error of one root does not affect the others. The answer has the order of the request.
//!
//! `scan` finds the files of a root, and `manifest` interprets the manifest of a plugin. The files are read through
//! a `Bundle`, which keeps the answer within its limits and collects warnings about files that are left out.

mod bundle;
mod manifest;
mod scan;

use std::sync::Arc;

use files::{Cancel, CancelOnDrop, FileRoot, Follow};
use protocol::{CapabilityRoot, DiscoverParams, DiscoverResult, DiscoveredRoot, WireError, encode_response};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::request_root::RequestRoot;
use crate::connection::Call;
use crate::limits::{MAX_CAPABILITY_ROOTS, MAX_ROOTS_AT_ONCE};
use crate::session::Session;

/// Bytes of an answer in JSON without its roots and the id of the request.
const AROUND_ROOTS_BYTES: usize = 64;

/// If this returns without an answer, for example after a panic, the dropped `call` answers with an error.
pub(super) fn discover(call: Call, params: DiscoverParams, session: Arc<Session>) {
    if params.roots.len() > MAX_CAPABILITY_ROOTS {
        let error = format!("capability root discovery accepts at most {MAX_CAPABILITY_ROOTS} roots");
        return call.finish::<()>(Err(WireError::invalid_request(error)));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let config = &call.connection.shared.config;
        let roots_bytes: usize = params.roots.iter().map(|root| bundle::root_bytes(&root.id, &root.path)).sum();
        let taken = AROUND_ROOTS_BYTES + call.encoded_id_bytes() + roots_bytes;
        let answer_room = bundle::AnswerRoom::new(config.max_message_bytes, taken);
        // The permit is held until the answer has its memory permits, so that unsent answers cannot pile up.
        let Ok(_permit) = session.files.discoveries.acquire().await else { return };
        // The size of the answer is not known yet, so the largest possible size is assumed.
        let Some(large_room) = call.connection.room_if_large(config.max_message_bytes).await else { return };
        let Some(roots) = discover_all(params.roots, &session, answer_room).await else { return };
        let id = call.id().clone();
        let encode = move || encode_response(&id, &DiscoverResult { roots });
        let Some(message) = session.files.operations.run(encode).await else { return };
        let Some(room) = call.connection.outbound.room_for_reply(message.len()).await else { return };
        call.finish_encoded(message, Some(room.with_large(large_room)));
    });
}

/// Reads all roots. None if a read panicked, or if the runtime shuts down.
async fn discover_all(
    roots: Vec<CapabilityRoot>,
    session: &Arc<Session>,
    answer_room: bundle::AnswerRoom,
) -> Option<Vec<DiscoveredRoot>> {
    let cancel = CancelOnDrop::new();
    let answer_room = Arc::new(answer_room);
    let permits = Arc::new(Semaphore::new(MAX_ROOTS_AT_ONCE));
    let mut running = JoinSet::new();
    for (number, root) in roots.into_iter().enumerate() {
        let (session, permits, answer_room) = (Arc::clone(session), Arc::clone(&permits), Arc::clone(&answer_room));
        let cancelled = cancel.flag();
        running.spawn(async move {
            let _permit = permits.acquire_owned().await.ok()?;
            let file_root = RequestRoot::of(root.sandbox.as_ref(), &session).ready().await;
            let discover = move || discover_one(file_root, root, &answer_room, &cancelled);
            let found = session.files.operations.run(discover).await?;
            Some((number, found))
        });
    }
    let mut found = Vec::new();
    while let Some(joined) = running.join_next().await {
        match joined {
            Ok(root) => found.push(root?),
            Err(cancelled) if cancelled.is_cancelled() => return None,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    found.sort_unstable_by_key(|(number, _)| *number);
    Some(found.into_iter().map(|(_, root)| root).collect())
}

fn discover_one(
    file_root: Result<FileRoot, WireError>,
    root: CapabilityRoot,
    answer_room: &bundle::AnswerRoom,
    cancel: &Cancel,
) -> DiscoveredRoot {
    let scanned = file_root.map_err(|error| error.message).and_then(|file_root| {
        let mut bundle = bundle::Bundle::new(&file_root, answer_room);
        let scanned = scan_root(&root, &mut bundle, cancel)?;
        Ok((scanned, bundle.into_warnings()))
    });
    let CapabilityRoot { id, path, sandbox: _ } = root;
    match scanned {
        Ok((scan::Scanned { plugin, skills, namespace_manifests }, warnings)) => {
            DiscoveredRoot { id, path, plugin, skills, namespace_manifests, warnings, error: None }
        }
        Err(error) => DiscoveredRoot {
            id,
            path,
            plugin: None,
            skills: Vec::new(),
            namespace_manifests: Vec::new(),
            warnings: Vec::new(),
            error: Some(error),
        },
    }
}

/// Scans a root. Fails with the text for the member `error` of the root in the answer.
fn scan_root(
    root: &CapabilityRoot,
    bundle: &mut bundle::Bundle<'_>,
    cancel: &Cancel,
) -> Result<scan::Scanned, String> {
    let uri = &root.path;
    let native = uri.to_native().map_err(|error| format!("failed to inspect capability root {uri}: {error}"))?;
    let metadata = files::metadata(bundle.file_root(), &native, Follow::Yes)
        .map_err(|error| format!("failed to inspect capability root {uri}: {error}"))?;
    if !metadata.is_directory {
        return Err(format!("capability root {uri} is not a directory"));
    }
    scan::scan(&native, uri, bundle, cancel).map_err(|error| format!("failed to scan capability root {uri}: {error}"))
}
