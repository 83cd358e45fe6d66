//! Why a request gets no sandbox for its policy.

use sandbox::{BuildError, LandlockUnfit, PlanError};
use spawn::SpawnError;

use crate::limits::{MAX_PROXY_SANDBOXES, MAX_SANDBOXES};

/// Why a session has no sandbox for a policy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxRefusal {
    /// The text is that of the published protocol.
    #[error("sandbox runtime paths are not configured")]
    NotConfigured,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Build(BuildError),
    #[error("{namespaces}; Landlock is no substitute: {landlock}")]
    NoSubstitute { namespaces: BuildError, landlock: LandlockUnfit },
    #[error("the request asks for Landlock (`useLegacyLandlock`), which cannot enforce it: {0}")]
    Landlock(LandlockUnfit),
    #[error("the launcher of the sandbox was not started: {0}")]
    Launcher(SpawnError),
    #[error(
        "the session uses {MAX_SANDBOXES} sandboxes at once, which is the most; end processes, or use fewer different policies"
    )]
    TooMany,
    #[error(
        "the session runs {MAX_PROXY_SANDBOXES} commands with a network proxy at once, which is the most, because each of them has a sandbox of its own; end one of them, or wait until one ends"
    )]
    TooManyProxies,
    #[error("{0}; the files that the policy names have probably changed meanwhile, so try again")]
    Unsteady(BuildError),
}

impl SandboxRefusal {
    /// The error of a build, if it says that this machine does not allow namespaces.
    pub(super) fn missing_namespaces(&self) -> Option<&BuildError> {
        match self {
            Self::Build(error) => Some(error).filter(|error| error.is_about_missing_namespaces()),
            _ => None,
        }
    }
}
