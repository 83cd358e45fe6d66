//! Measures copies of large files with `exec-server cp`: down, from the server to this machine, and up, to the
//! server. The limit is a copy of the same file through a pipe.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use testkit::{TestServer, binary, peak_resident_bytes};

use crate::sample::p50;
use crate::table::{Goal, Measurement, Row};

const GIBIBYTE: u64 = 1 << 30;
const LARGE_FILE_BYTES: u64 = 4 * GIBIBYTE;
const REPETITIONS: usize = 3;
/// A file system in memory, so that the speed of the disk does not count.
const IN_MEMORY: &str = "/dev/shm";

/// Measures the throughput of 1 GiB in both directions.
pub(crate) async fn throughput() -> Result<Vec<Row>> {
    let directory = temporary_directory(3 * GIBIBYTE)?;
    let (source, target) = (directory.path().join("source"), directory.path().join("target"));
    fill(&source, GIBIBYTE)?;
    let server = TestServer::start().await;
    let (mut down, mut up, mut pipe) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        pipe.push(timed(&target, || through_a_pipe(&source, &target))?);
        down.push(timed(&target, || cp(&server, &remote(&source), &target.to_string_lossy()).map(drop))?);
        up.push(timed(&target, || cp(&server, &source.to_string_lossy(), &remote(&target)).map(drop))?);
    }
    let rate = |times: Vec<Duration>| match p50(times) {
        Measurement::Seconds(seconds) => Measurement::BytesPerSecond(GIBIBYTE as f64 / seconds),
        other => other,
    };
    let limit = Some(rate(pipe));
    let goal = Goal::AtLeastTimes(0.4);
    Ok(vec![
        Row { figure: "1 GiB by `cp` down, compared with a pipe", ours: rate(down), limit, goal },
        Row { figure: "1 GiB by `cp` up, compared with a pipe", ours: rate(up), limit, goal },
    ])
}

/// Measures the largest resident memory of `exec-server cp` and of the server while 4 GiB are copied.
pub(crate) async fn peak_memory() -> Result<Vec<Row>> {
    let directory = temporary_directory(2 * LARGE_FILE_BYTES)?;
    let (source, target) = (directory.path().join("source"), directory.path().join("target"));
    fill(&source, LARGE_FILE_BYTES)?;
    let mut peaks = Vec::new();
    for direction in [
        [remote(&source), target.to_string_lossy().into_owned()],
        [source.to_string_lossy().into_owned(), remote(&target)],
    ] {
        // A new server, because the kernel reports the peak since the start of a process.
        let server = TestServer::start().await;
        let client = cp(&server, &direction[0], &direction[1])?;
        ensure!(target.metadata()?.len() == LARGE_FILE_BYTES);
        std::fs::remove_file(&target)?;
        peaks.push((client, peak_resident_bytes(server.pid())));
    }
    let largest = |peaks: Vec<usize>| Measurement::Bytes(peaks.into_iter().max().unwrap_or_default() as f64);
    let (clients, servers) = peaks.into_iter().unzip();
    let goal = Goal::UpTo(Measurement::Bytes((32 << 20) as f64));
    Ok(vec![
        Row { figure: "`cp` of 4 GiB, memory of the client", ours: largest(clients), limit: None, goal },
        Row { figure: "`cp` of 4 GiB, memory of the server", ours: largest(servers), limit: None, goal },
    ])
}

/// A directory in memory if this many bytes and a quarter more fit there, or else on the disk.
fn temporary_directory(bytes: u64) -> Result<TempDir> {
    let memory = rustix::fs::statvfs(IN_MEMORY).ok().filter(|fs| fs.f_bavail * fs.f_frsize > bytes + bytes / 4);
    Ok(match memory {
        Some(_) => tempfile::tempdir_in(IN_MEMORY)?,
        None => tempfile::tempdir()?,
    })
}

/// Writes a file of this size, which is a multiple of 1 MiB.
fn fill(path: &Path, bytes: u64) -> Result<()> {
    let block: Vec<u8> = (0..1u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut file = File::create(path)?;
    (0..bytes >> 20).try_for_each(|_| file.write_all(&block))?;
    Ok(())
}

/// The path as an argument of `exec-server cp` that names a file of the server.
fn remote(path: &Path) -> String {
    format!(":{}", path.display())
}

/// Measures a copy of 1 GiB to `target`. Then checks the size of `target` and removes it.
fn timed(target: &PathBuf, copy: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    copy()?;
    let took = start.elapsed();
    ensure!(target.metadata()?.len() == GIBIBYTE);
    std::fs::remove_file(target)?;
    Ok(took)
}

fn through_a_pipe(source: &Path, target: &Path) -> Result<()> {
    let mut reading = Command::new("cat").arg(source).stdout(Stdio::piped()).spawn()?;
    let pipe = reading.stdout.take().context("the stdout of `cat` is missing")?;
    let status = Command::new("cat").stdin(pipe).stdout(File::create(target)?).status()?;
    ensure!(status.success() && reading.wait()?.success());
    Ok(())
}

/// Runs `exec-server cp` and returns its largest resident memory, in bytes. The memory is read every 5 ms, because
/// the kernel no longer reports it after the end.
fn cp(server: &TestServer, source: &str, target: &str) -> Result<usize> {
    let mut child = Command::new(binary())
        .args(["cp", "--quiet", "--connect", server.url(), source, target])
        .stdin(Stdio::null())
        .spawn()?;
    let mut peak = 0;
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "cp: {status}");
            return Ok(peak);
        }
        peak = peak.max(peak_resident_bytes(child.id()));
        std::thread::sleep(Duration::from_millis(5));
    }
}
