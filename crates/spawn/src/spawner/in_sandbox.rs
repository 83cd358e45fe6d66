//! Starts processes in a sandbox: another process makes the child (see `maker`), and everything else is as with other children.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::Pid;

use super::{HOLD_PIPES_BELOW_CHILDREN, Spawned, Spawner, kill_unwatched, not_executed};
use crate::cancel_flag::CancelFlag;
use crate::cgroup::TreeCgroup;
use crate::child::{Accounting, Child};
use crate::children::{StartingLeader, children};
use crate::command::{SpawnCommand, Stdio};
use crate::descriptors;
use crate::error::SpawnError;
use crate::exec_args::{ExecArgs, program};
use crate::limits::WatchedLimits;
use crate::lookup::ProgramCandidates;
use crate::maker::{ChildMaker, ChildRequest, MadeChild, MakeError, StartConnection};
use crate::rlimit::{ChildLimits, ResourceLimit};
use crate::tag::Tag;
use crate::vfork::{FileActions, StartedChild};
use crate::wiring::Wiring;

impl Spawner {
    /// As [`Self::spawn`], but `maker` makes the child, in a sandbox. The working directory and the program are those of
    /// the sandbox.
    pub fn spawn_in_sandbox(
        &self,
        maker: &dyn ChildMaker,
        command: &SpawnCommand,
        tag: Tag,
        cancelled: &Arc<CancelFlag>,
    ) -> Result<Spawned, SpawnError> {
        if cancelled.is_cancelled() {
            return Err(SpawnError::Cancelled);
        }
        let plan = command.limits.map(|limits| self.limit_plan(&limits)).transpose()?;
        let args = ExecArgs::new(command)?;
        let program = program(command)?;
        let candidates = ProgramCandidates::new(program, &command.env)?;
        let no_cgroup = || SpawnError::resource("make a cgroup for the limits of the process");
        let cgroup = plan.as_ref().and_then(|plan| plan.cgroup).map(|limits| self.make_cgroup(limits, tag));
        let cgroup = cgroup.transpose().map_err(no_cgroup())?;
        let cgroup_procs = cgroup.as_ref().map(TreeCgroup::open_procs).transpose().map_err(no_cgroup())?;
        let no_streams = || SpawnError::resource("open the standard streams of the process");
        let wiring = Wiring::new(command.stdio, &mut FileActions::default()).map_err(no_streams())?;
        let streams = wiring.descriptors_for_maker().map_err(no_streams())?;
        let no_socket = || SpawnError::resource("open a socket to the sandbox");
        let (server_end, maker_end) = descriptors::socket_pair().map_err(no_socket())?;
        cancelled.hang_up_when_cancelled(server_end.try_clone().map_err(no_socket())?);

        let resources = plan.as_ref().map_or(&[][..], |plan| &plan.resources);
        let limits = ChildLimits::new(self.tags_work().then_some(tag), resources).leave_descriptors_in_flight();
        let other_limits: Vec<_> = limits.others.iter().map(ResourceLimit::numbers).collect();
        let starting = StartingLeader::new(tag);
        let other_children = children().leader_count();
        let request = ChildRequest {
            candidates: &candidates.paths,
            searched: candidates.searched,
            argv: &args.argv.strings,
            env: &args.env.strings,
            cwd: &command.cwd,
            umask: command.umask,
            tag: limits.tag.as_ref().map(ResourceLimit::numbers),
            limits: &other_limits,
            terminal: matches!(command.stdio, Stdio::Pty(_)),
            standard: streams.standard.each_ref().map(AsFd::as_fd),
            extra: streams.extra.as_ref().map(AsFd::as_fd).zip(command.stdio.extra_descriptor()),
            cgroup_procs: cgroup_procs.as_ref().map(AsFd::as_fd),
        };
        let made = maker.make(&request, StartConnection { server_end: server_end.as_fd(), maker_end });
        cancelled.keep_connection();
        let MadeChild { pid, lifeline } = made.map_err(|error| match error {
            _ if cancelled.is_cancelled() => SpawnError::Cancelled,
            MakeError::Cancelled => SpawnError::Cancelled,
            MakeError::Cwd(source) => SpawnError::SandboxedCwd { path: command.cwd.clone(), source },
            MakeError::Program(source) => match not_executed(command, program, source) {
                SpawnError::Program { path, source } if is_about_path(&source) => {
                    SpawnError::SandboxedProgram { path, source }
                }
                other => other,
            },
            MakeError::Resource(action, source) => SpawnError::Resource { action, source },
        })?;
        let pid = Pid::from_raw(pid).ok_or(Errno::SRCH).map_err(SpawnError::resource("watch the process"))?;
        starting.started(pid);
        drop((streams, server_end, cgroup_procs));
        let accounting = plan.map(|plan| Accounting { watched: WatchedLimits::new(&plan), cgroup });
        let child = Child::new(StartedChild { pid, pidfd: None }, tag, accounting, lifeline);
        let child = child.map_err(|error| {
            kill_unwatched(pid, tag);
            SpawnError::resource("watch the process")(error)
        })?;
        Ok(Spawned { child, io: wiring.finish(other_children < HOLD_PIPES_BELOW_CHILDREN) })
    }
}

/// Whether an error may say that the sandbox hides a path.
fn is_about_path(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}
