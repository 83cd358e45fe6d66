//! A pseudo-terminal in which the binary runs. A test types keys and waits for text that the binary shows. The
//! *screen* is all the output that the test has not taken yet, control sequences included; it is not divided into
//! rows.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::process::{Child, Command};

use crate::configuration::hide_configuration;
use crate::server::binary;
use crate::wait::eventually;

/// Longer than any step takes on a loaded machine. Shorter than the timeouts of [`eventually`] and of a test, so that
/// the panic here comes first: it shows what is on the screen.
const STEP_TIMEOUT: Duration = Duration::from_secs(25);

/// A pseudo-terminal and the program in it.
pub struct Terminal {
    master: File,
    /// Held open, so that the terminal still works after the program in it has ended.
    slave: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    /// The binary, which `setsid` has executed as the leader of a session with this terminal.
    pub program: Child,
}

impl Terminal {
    /// Starts the binary with these arguments in a terminal of 24 lines of 80 characters. The configuration of the
    /// developer is hidden from it. `prepare` may change the command.
    pub fn start(args: &[&str], prepare: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        set_size(&slave, 24, 80);
        // The program gets the signals of the terminal only if this is its controlling terminal.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(binary()).args(args).env("TERM", "xterm").kill_on_drop(true);
        hide_configuration(&mut command);
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
        collect_output(master.try_clone().unwrap(), Arc::clone(&screen));
        Self { master, slave, screen, program }
    }

    /// Types these keys. Control keys are written as their characters, such as `\x03` for Ctrl-C.
    pub fn type_keys(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until this text was shown. Returns everything that was shown up to the end of the text, without what an
    /// earlier call has returned. Panics after 25 s.
    pub async fn wait_for_text(&self, text: &str) -> String {
        let take_shown = || {
            let mut screen = self.screen.lock().unwrap();
            let end = screen.windows(text.len()).position(|shown| shown == text.as_bytes())? + text.len();
            Some(screen.drain(..end).collect::<Vec<u8>>())
        };
        let found = tokio::time::timeout(STEP_TIMEOUT, eventually("the terminal shows the text", take_shown)).await;
        let shown = found.unwrap_or_else(|_| panic!("the terminal shows no {text:?}, but {:?}", self.screen()));
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Whether the terminal is in raw mode, so that keys go to the program as they are. If line editing or echo is
    /// off, this counts as raw mode.
    pub fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits until the terminal is in raw mode (`raw` is true) or is not (`raw` is false).
    pub async fn wait_for_raw_mode(&self, raw: bool) {
        eventually("the terminal changes its mode", || (self.is_raw() == raw).then_some(())).await;
    }

    /// Gives the terminal another size. The kernel then sends SIGWINCH to the program.
    pub fn resize(&self, rows: u16, cols: u16) {
        set_size(&self.slave, rows, cols);
    }

    /// The process id of the program, which must not have been waited for.
    pub fn pid(&self) -> u32 {
        self.program.id().unwrap()
    }

    /// Waits for the end of the program. Panics after 25 s.
    pub async fn wait_for_end(&mut self) -> ExitStatus {
        let ended = tokio::time::timeout(STEP_TIMEOUT, self.program.wait()).await;
        ended.unwrap_or_else(|_| panic!("the program does not end; the terminal shows {:?}", self.screen())).unwrap()
    }

    /// Everything that the program has shown and that was not returned before. To be called after the program has
    /// ended. The terminal may deliver the last output late, so this function writes a mark to it and waits until the
    /// mark is shown.
    pub async fn screen_after_end(&self) -> String {
        const MARK: &str = "\u{1}the end\u{1}";
        rustix::io::write(&self.slave, MARK.as_bytes()).unwrap();
        let shown = self.wait_for_text(MARK).await;
        shown.trim_end_matches(MARK).to_owned()
    }

    /// Everything that was shown and that no other method has returned. The next call returns it again.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }
}

fn set_size(terminal: &OwnedFd, rows: u16, cols: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

/// Appends the output of the terminal to `screen`, until no process has the terminal open any more.
fn collect_output(mut master: File, screen: Arc<Mutex<Vec<u8>>>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = master.read(&mut buffer) {
            screen.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
}
