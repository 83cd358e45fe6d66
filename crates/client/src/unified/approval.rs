//! The interface by which a harness, a program that runs commands for an AI agent, decides whether a command may run
//! again without its sandbox.

use std::future::Future;
use std::pin::Pin;

use protocol::PathUri;

use super::response::ExecCommandResponse;

/// The decision of an [`ApprovalDecider`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Run the command once more, without the sandbox.
    Approved,
    /// Do not run the command again.
    Refused,
}

/// A command to which the sandbox has denied something, and which could run again without the sandbox.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalRequest<'a> {
    /// The program and the arguments that would run.
    pub argv: &'a [String],
    /// The working directory of the command.
    pub cwd: &'a PathUri,
    /// The result of the run in the sandbox.
    pub denied: &'a ExecCommandResponse,
}

/// A future that an [`ApprovalDecider`] returns.
pub type Deciding<'a> = Pin<Box<dyn Future<Output = Approval> + Send + 'a>>;

/// Decides whether a command may run again without its sandbox, after the sandbox has denied it something. There is
/// no time limit, so a person can decide.
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
    /// Decides about one command.
    fn decide<'a>(&'a self, request: ApprovalRequest<'a>) -> Deciding<'a>;
}
