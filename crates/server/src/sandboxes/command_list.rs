//! The commands that run in a sandbox of namespaces, as far as the sandbox has to know them: whether there are any, and
//! whether the last ones are just ending. Commands of sandboxes without namespaces are not seen.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a request waits for the last processes of commands that have ended.
const ENDING_PATIENCE: Duration = Duration::from_millis(100);

/// When a command is added to a list that is shorter than this, the list is not searched for commands that have ended.
const FEW_COMMANDS: usize = 16;

/// The commands of a sandbox.
#[derive(Default)]
pub(super) struct CommandList {
    commands: Mutex<Commands>,
}

#[derive(Default)]
struct Commands {
    running: Vec<RunningCommand>,
    /// When the list has this length, commands that have ended are removed from it.
    cleanup_length: usize,
}

struct RunningCommand {
    /// The socket whose other end is closed when the command and all of its descendants have ended. The
    /// [`Child`](spawn::Child) shares it until the command itself has ended.
    lifeline: Arc<OwnedFd>,
    /// Whether a request has waited in vain for the last processes of the command. They are daemons then.
    has_daemons: bool,
}

impl CommandList {
    pub(super) fn add(&self, lifeline: Arc<OwnedFd>) {
        let mut commands = self.commands.lock();
        if commands.running.len() >= commands.cleanup_length {
            commands.forget_ended();
            // The length doubles, so that looking at all lifelines is rare and costs little for each command.
            commands.cleanup_length = commands.running.len() * 2 + FEW_COMMANDS;
        }
        commands.running.push(RunningCommand { lifeline, has_daemons: false });
    }

    /// Whether no process of a command runs, daemons of ended commands included.
    pub(super) fn is_empty(&self) -> bool {
        let mut commands = self.commands.lock();
        commands.forget_ended();
        commands.running.is_empty()
    }

    /// Whether all commands have ended, or are about to, so that the sandbox is unused soon.
    pub(super) fn is_soon_empty(&self) -> bool {
        let mut commands = self.commands.lock();
        commands.forget_ended();
        commands.running.iter().all(RunningCommand::is_ending)
    }

    /// If all commands have ended, waits a moment for the last of their processes: the end of a command is known before these are gone.
    /// Does not wait while a command runs, and not a second time for a daemon.
    pub(super) fn wait_for_last_processes(&self) {
        let until = Instant::now() + ENDING_PATIENCE;
        loop {
            let mut commands = self.commands.lock();
            commands.forget_ended();
            if commands.running.is_empty() || !commands.running.iter().all(RunningCommand::is_ending) {
                return;
            }
            if Instant::now() >= until {
                commands.running.iter_mut().for_each(|command| command.has_daemons = true);
                return;
            }
            drop(commands);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Commands {
    fn forget_ended(&mut self) {
        self.running.retain(|command| !sandbox::is_hung_up(&command.lifeline));
    }
}

impl RunningCommand {
    /// Whether the command has ended and its last processes are probably about to.
    fn is_ending(&self) -> bool {
        !self.has_daemons && Arc::strong_count(&self.lifeline) == 1
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn add_command(list: &CommandList) -> (Arc<OwnedFd>, UnixStream) {
        let (server, sandbox) = UnixStream::pair().unwrap();
        let lifeline = Arc::new(OwnedFd::from(server));
        list.add(Arc::clone(&lifeline));
        (lifeline, sandbox)
    }

    #[test]
    fn only_the_last_processes_of_ended_commands_are_waited_for() {
        let list = CommandList::default();
        let (running, _sandbox) = add_command(&list);
        assert!(!list.is_soon_empty());
        let begun = Instant::now();
        for _ in 0..10_000 {
            list.wait_for_last_processes();
        }
        assert!(begun.elapsed() < ENDING_PATIENCE * 100, "a running command is not waited for");
        drop(running);
        assert!(list.is_soon_empty());
        let begun = Instant::now();
        list.wait_for_last_processes();
        assert!(begun.elapsed() >= ENDING_PATIENCE);
        assert!(list.commands.lock().running[0].has_daemons, "a daemon is waited for only once");
        assert!(!list.is_empty() && !list.is_soon_empty());
    }

    #[test]
    fn a_wait_ends_with_the_last_process() {
        let list = CommandList::default();
        let (ended, sandbox) = add_command(&list);
        drop(ended);
        let process = std::thread::spawn(move || drop(sandbox));
        list.wait_for_last_processes();
        process.join().unwrap();
        assert!(list.is_empty());
    }
}
