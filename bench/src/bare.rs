//! The same work with no server in between: what this machine can do at best.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The program of every one-shot.
pub(crate) const TRUE: &str = "/usr/bin/true";

/// `posix_spawn` and `wait`, which is what the standard library does here.
pub(crate) fn spawn_and_wait() -> Result<Duration> {
    let start = Instant::now();
    let mut child =
        Command::new(TRUE).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    child.wait()?;
    Ok(start.elapsed())
}

/// `count` one-shots from two threads.
pub(crate) fn two_threads(count: usize) -> Result<Duration> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| (0..count / 2).try_for_each(|_| spawn_and_wait().map(drop))));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(start.elapsed())
}

/// Reads what a command prints straight from its pipe, with the same pipe size and reads as the server uses.
pub(crate) fn read_pipe(argv: &[&str]) -> Result<(u64, Duration)> {
    let start = Instant::now();
    let mut child = Command::new(argv[0]).args(&argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut total = 0;
    if let Some(mut stdout) = child.stdout.take() {
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, 1 << 20);
        let mut buffer = vec![0; 256 << 10];
        loop {
            let count = stdout.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            total += count as u64;
        }
    }
    child.wait()?;
    Ok((total, start.elapsed()))
}
