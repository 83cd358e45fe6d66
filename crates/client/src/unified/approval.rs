//! Asking whether a command that the sandbox has stopped may run without it.

use std::future::Future;
use std::pin::Pin;

use protocol::PathUri;

use super::response::ExecCommandResponse;

/// The answer of an [`ApprovalDecider`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Run it once more, without the sandbox.
    Approved,
    /// Leave it at that.
    Refused,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalRequest<'a> {
    /// What would run.
    pub argv: &'a [String],
    /// Where.
    pub cwd: &'a PathUri,
    /// How it went in the sandbox.
    pub denied: &'a ExecCommandResponse,
}

/// A future that an [`ApprovalDecider`] returns.
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// Decides whether a command that the sandbox has refused something may run again without it. It may take as long as a person does.
///
/// ```
/// use client::{Approval, ApprovalDecider, ApprovalRequest, Deciding};
///
/// struct OnlyGit;
///
/// impl ApprovalDecider for OnlyGit {
///     fn decide<'a>(&'a self, request: ApprovalRequest<'a>) -> Deciding<'a> {
///         let is_git = request.argv.first().is_some_and(|program| program == "git");
///         Box::pin(async move { if is_git { Approval::Approved } else { Approval::Refused } })
///     }
/// }
/// ```
pub trait ApprovalDecider: Send + Sync + 'static {
    /// Decides.
    fn decide<'a>(&'a self, request: ApprovalRequest<'a>) -> Deciding<'a>;
}
