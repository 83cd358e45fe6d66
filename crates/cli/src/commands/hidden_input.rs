//! Reads a secret: from stdin up to its end, or from the terminal as one line that is not shown. Start with
//! [`read_secret`].

use std::io::{self, Read as _};

use anyhow::Context as _;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::task::spawn_blocking;
use zeroize::Zeroizing;

use super::signals::{FatalSignal, Signals};
use super::terminal::is_terminal_at_stdin;

/// Most bytes that are accepted from stdin; a secret is shorter.
const MAX_BYTES: usize = 64 << 10;

/// Longest line that a terminal passes on, with the line break. It drops the rest of a longer line.
const MAX_TERMINAL_LINE: usize = 4095;

/// A secret from stdin, or from the terminal after `prompt`. A secret from a pipe can have a line break at its end. On
/// a terminal, a signal such as Ctrl-C ends the wait.
pub(crate) async fn read_secret(prompt: &str) -> anyhow::Result<Result<Zeroizing<String>, FatalSignal>> {
    if !is_terminal_at_stdin() {
        return Ok(Ok(spawn_blocking(read_all).await??));
    }
    // Ctrl-Z is received and ignored, because a stop would leave the terminal without echo.
    let mut signals = Signals::listen()?;
    // Restores the terminal here, because the thread may wait for the line for ever.
    let _hidden = HiddenEcho::begin().context("cannot switch off the echo of the terminal")?;
    crate::write_to_stderr(prompt);
    match signals.or_fatal(spawn_blocking(read_line)).await {
        Ok(line) => Ok(Ok(line??)),
        Err(signal) => {
            crate::write_to_stderr("\n");
            Ok(Err(signal))
        }
    }
}

fn read_line() -> anyhow::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::with_capacity(MAX_TERMINAL_LINE + 1));
    io::stdin().read_line(&mut line).context("cannot read the terminal")?;
    anyhow::ensure!(
        line.len() < MAX_TERMINAL_LINE,
        "the line is too long for a terminal; write it to stdin through a pipe"
    );
    Ok(line)
}

fn read_all() -> anyhow::Result<Zeroizing<String>> {
    // The exact capacity, because a buffer that grows leaves copies of the secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_BYTES + 1));
    io::stdin().take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).context("cannot read stdin")?;
    anyhow::ensure!(bytes.len() <= MAX_BYTES, "stdin holds more than 64 KiB, so it is not a key");
    // The error of a conversion would contain the bytes.
    std::str::from_utf8(&bytes)
        .map(|text| Zeroizing::new(text.to_owned()))
        .context("stdin does not hold UTF-8 text, so it is not a key")
}

/// The terminal does not show what is typed, apart from the line break. Dropping it restores the terminal.
struct HiddenEcho {
    before: Termios,
}

impl HiddenEcho {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        hidden.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON);
        // What was typed before was shown, so it is no secret.
        tcsetattr(stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self { before })
    }
}

impl Drop for HiddenEcho {
    fn drop(&mut self) {
        // Further lines of a pasted text must not become commands of the shell. An error means that the terminal is gone.
        let _ignored = tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}
