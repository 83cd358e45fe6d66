//! Finds the sandbox for a process, or makes it. This looks at files, and making a sandbox takes milliseconds, so it runs on a thread that may block.

use std::ffi::OsStr;
use std::sync::Arc;

use protocol::{SandboxContext, WireError};

use super::start::StartSpec;
use crate::sandbox_policy::process_sandbox_rules;
use crate::sandboxes::{MechanismChoice, SandboxRefusal, SessionSandbox};
use crate::session::Session;
use crate::starter::SandboxSearch;

/// How the sandbox of a process is found.
pub(super) enum SandboxLookup {
    /// The process starts without one.
    None,
    /// It was found.
    Found(Arc<SessionSandbox>),
    /// It is found by the thread that starts the process, because nothing needs it before. This saves the way to another thread.
    Later(SandboxSearch),
}

/// Finds the sandbox of a process as far as it is needed before the start.
pub(super) async fn sandbox_for_process(
    spec: &StartSpec,
    session: &Arc<Session>,
) -> Result<SandboxLookup, WireError> {
    let Some(context) = spec.sandbox.clone() else { return Ok(SandboxLookup::None) };
    let find = search(spec, context, session);
    if spec.proxy.is_none() && spec.snapshot.is_none() {
        return Ok(SandboxLookup::Later(find));
    }
    let found = session.files.operations.run(find).await;
    found
        .unwrap_or_else(|| Err(WireError::internal("the server has failed to make the sandbox; its log says why")))
        .map(SandboxLookup::Found)
}

fn search(spec: &StartSpec, context: SandboxContext, session: &Arc<Session>) -> SandboxSearch {
    let (cwd, tmpdir) = (spec.cwd.clone(), spec.env.get(OsStr::new("TMPDIR")).cloned());
    let owner = Arc::clone(session);
    let is_proxied = spec.proxy.is_some();
    Box::new(move || {
        let rules = process_sandbox_rules(&context, &cwd, tmpdir.as_deref())?;
        // A command must not reach the proxy of another command, so each of them has a network, and with it a sandbox, of its own.
        // It needs a network namespace, so it does not matter whether the request asks for Landlock.
        let found = if is_proxied {
            owner.sandboxes.make_own(&owner.tags, &rules.files)
        } else {
            let choice = if context.use_legacy_landlock { MechanismChoice::Landlock } else { MechanismChoice::Best };
            owner.sandboxes.obtain_for_command(&owner.tags, &rules.files, rules.network, choice)
        };
        found.map_err(|error| match error {
            SandboxRefusal::NotConfigured => WireError::invalid_params(error.to_string()),
            _ => WireError::invalid_params(format!("failed to prepare process sandbox: {error}")),
        })
    })
}
