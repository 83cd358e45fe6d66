//! Ends unused sandboxes whose placeholders are in the way of a command that is about to start. A placeholder is an empty
//! directory on the host that nobody may write. It is there for every process of the machine, also for commands without a
//! sandbox and for those of other sessions. So this looks at the sandboxes of all sessions of the server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use sandbox::PlaceholderPaths;

use super::session_sandbox::{SessionSandbox, is_unused};
use crate::placeholder_list::PlaceholderList;

/// How long a start waits for another start that is just ending sandboxes of the same session. Not longer, because the file system of a
/// placeholder can hang.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(100);

/// The sandboxes of all sessions of a server.
pub(crate) struct AllSandboxes {
    placeholders: Arc<PlaceholderList>,
    /// The sessions that have made a sandbox.
    sessions: Mutex<Vec<Weak<SandboxList>>>,
}

impl AllSandboxes {
    pub(super) fn new(placeholders: Arc<PlaceholderList>) -> Arc<Self> {
        Arc::new(Self { placeholders, sessions: Mutex::default() })
    }

    /// Adds the list of a session, if it is not known yet.
    pub(super) fn add(&self, list: &Arc<SandboxList>) {
        let mut sessions = self.sessions.lock();
        sessions.retain(|known| known.strong_count() > 0);
        if !sessions.iter().any(|known| known.as_ptr() == Arc::as_ptr(list)) {
            sessions.push(Arc::downgrade(list));
        }
    }

    /// Whether no sandbox has a placeholder. Costs next to nothing.
    pub(crate) fn have_no_placeholders(&self) -> bool {
        self.placeholders.has_none()
    }

    /// Ends unused sandboxes with a placeholder whose directory is `cwd`, or above or below it, because a command that starts there without a
    /// sandbox may want to make a directory in its place. Blocks.
    pub(crate) fn end_unused_around(&self, cwd: &Path) {
        let cwd = without_links(cwd);
        self.end_unused(|placeholders| placeholders.has_around(&cwd));
    }

    /// Whether [`end_unused_around`](Self::end_unused_around) would probably end a sandbox. Looks up the path, and waits for nothing else.
    pub(crate) fn are_in_the_way_around(&self, cwd: &Path) -> bool {
        if self.have_no_placeholders() {
            return false;
        }
        let cwd = without_links(cwd);
        let is_in_the_way = |sandbox: &Arc<SessionSandbox>| {
            // The count of a sandbox that file operations use is higher.
            let is_free = Arc::strong_count(sandbox) == 1 && sandbox.commands.is_soon_empty();
            is_free && sandbox.placeholder_paths().has_around(&cwd)
        };
        self.sessions().iter().any(|list| list.lock().iter().any(is_in_the_way))
    }

    /// Ends unused sandboxes for whose placeholders `are_in_the_way` is true. Returns whether it has ended one. Blocks.
    pub(super) fn end_unused(&self, are_in_the_way: impl Fn(&PlaceholderPaths) -> bool) -> bool {
        if self.have_no_placeholders() {
            return false;
        }
        // `any` would stop at the first session that has one.
        self.sessions().iter().filter(|list| list.end_unused(&are_in_the_way)).count() > 0
    }

    fn sessions(&self) -> Vec<Arc<SandboxList>> {
        self.sessions.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

/// Placeholders have paths without links.
fn without_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// The sandboxes that requests of a session may use again.
#[derive(Default)]
pub(super) struct SandboxList {
    known: Mutex<Vec<Arc<SessionSandbox>>>,
    /// Held while sandboxes are ended here. So a second command does not start before the placeholders are gone.
    ending: Mutex<()>,
}

impl SandboxList {
    /// Also locked by tasks, so it must not be held while something blocks or takes long.
    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Arc<SessionSandbox>>> {
        self.known.lock()
    }

    /// As [`AllSandboxes::end_unused`], for one session.
    pub(super) fn end_unused(&self, are_in_the_way: impl Fn(&PlaceholderPaths) -> bool) -> bool {
        let Some(_one_at_a_time) = self.ending.try_lock_for(OTHERS_TIMEOUT) else { return false };
        // The sandboxes themselves are not shared here, because a shared sandbox counts as used.
        let looked_at =
            |sandbox: &Arc<SessionSandbox>| (Arc::clone(sandbox.placeholder_paths()), Arc::clone(&sandbox.commands));
        let mut in_the_way: Vec<_> = self.lock().iter().map(looked_at).collect();
        in_the_way.retain(|(placeholders, _)| !placeholders.is_empty() && are_in_the_way(placeholders));
        in_the_way.iter().for_each(|(_, commands)| commands.wait_for_last_processes());
        let has_these = |sandbox: &SessionSandbox, placeholders: &Arc<PlaceholderPaths>| {
            Arc::ptr_eq(sandbox.placeholder_paths(), placeholders)
        };
        let ended: Vec<_> = self
            .lock()
            .extract_if(.., |sandbox| {
                in_the_way.iter().any(|(placeholders, _)| has_these(sandbox, placeholders)) && is_unused(sandbox)
            })
            .collect();
        !ended.is_empty()
    }
}
