//! Does the work of some benchmarks without a server, and measures it. That is the best that this machine can do, and
//! the benchmarks print it as the limit. A *one-shot* is the start of a short process and the wait for its end.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

/// The program that every one-shot runs.
pub(crate) const TRUE: &str = "/usr/bin/true";

/// Starts [`TRUE`] with the standard library, which uses `posix_spawn`, and waits for its end. Returns the time
/// of both.
pub(crate) fn spawn_and_wait() -> Result<Duration> {
    let start = Instant::now();
    let mut child =
        Command::new(TRUE).env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    child.wait()?;
    Ok(start.elapsed())
}

/// Runs `count` one-shots, half of them on each of two threads, and returns the time until all have ended. `count` is
/// even.
pub(crate) fn spawn_on_two_threads(count: usize) -> Result<Duration> {
    let start = Instant::now();
    std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| (0..count / 2).try_for_each(|_| spawn_and_wait().map(drop))));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    Ok(start.elapsed())
}

/// Reads the output of a command from a pipe. The pipe is enlarged to 1 MiB, as the server does for a process with
/// much output. Returns the number of bytes, and the time from the start of the command to its end.
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
