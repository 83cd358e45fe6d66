//! A terminal with the binary in it, and a test in front of it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use testkit::{binary, eventually};
use tokio::process::{Child, Command};

use crate::support::nothing_configured;

/// Longer than anything here takes on a loaded machine, and shorter than others wait, who cannot say what is on the screen.
const PATIENCE: Duration = Duration::from_secs(25);

/// One terminal.
pub(crate) struct Terminal {
    master: File,
    /// Held open, so that the terminal outlives the program in it.
    slave: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    pub(crate) program: Child,
}

impl Terminal {
    /// A terminal of 24 lines of 80 characters, in which the binary runs with these arguments.
    pub(crate) fn start(args: &[&str], prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        set_size(&slave, 24, 80);
        // The terminal has to be the controlling one for its signals to arrive.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(binary()).args(args).env("TERM", "xterm").kill_on_drop(true);
        nothing_configured(&mut command);
        for variable in ["PS1", "PROMPT_COMMAND", "ENV", "BASH_ENV"] {
            command.env_remove(variable);
        }
        command
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        let program = prepare(&mut command).spawn().unwrap();
        let master = File::from(master);
        let screen = Arc::<Mutex<Vec<u8>>>::default();
        watch(master.try_clone().unwrap(), Arc::clone(&screen));
        Self { master, slave, screen, program }
    }

    /// Types.
    pub(crate) fn keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this has been shown, and takes what was shown up to its end.
    pub(crate) async fn shows(&self, text: &str) -> String {
        let look = || {
            let mut screen = self.screen.lock().unwrap();
            let end = screen.windows(text.len()).position(|shown| shown == text.as_bytes())? + text.len();
            Some(screen.drain(..end).collect::<Vec<u8>>())
        };
        let found = tokio::time::timeout(PATIENCE, eventually("the terminal shows it", look)).await;
        let shown = found.unwrap_or_else(|_| panic!("the terminal shows no {text:?}, but {:?}", self.screen()));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Whether keys go to the program as they are.
    pub(crate) fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits until it is, or is not.
    pub(crate) async fn becomes_raw(&self, raw: bool) {
        eventually("the terminal changes its mode", || (self.is_raw() == raw).then_some(())).await;
    }

    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        set_size(&self.slave, rows, cols);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.program.id().unwrap()
    }

    /// Waits for the end of the program.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(PATIENCE, self.program.wait()).await;
        ended.unwrap_or_else(|_| panic!("it does not end; the terminal shows {:?}", self.screen())).unwrap()
    }

    fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, cols: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Collects what is shown, for as long as the test runs.
fn watch(mut master: File, screen: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = master.read(&mut buffer) {
            screen.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
}
