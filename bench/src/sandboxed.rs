//! Measures sandboxed one-shots, output and file operations, and compares them with bubblewrap and with the same work
//! without a sandbox.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use testkit::{TestServer, descendants};

use crate::bare::TRUE;
use crate::output;
use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Measurement, Row};

const ROUNDS: usize = 8;
const ONE_SHOTS_PER_ROUND: usize = 40;
/// Sessions whose first one-shot is measured.
const FIRST_ONE_SHOTS: usize = 40;
/// One-shots of which the rate is measured, and how many of them run at once.
const THROUGHPUT_ONE_SHOTS: usize = 1000;
const IN_FLIGHT: usize = 64;
/// Reads of a small file in each round.
const READS_PER_ROUND: usize = 400;
/// Writable directories of the policy with many entries.
const MANY_ROOTS: usize = 200;

/// A policy that allows reading everything and writing these directories, without network.
fn policy(roots: &[&Path]) -> String {
    let entries: String = roots
        .iter()
        .map(|root| format!(r#"{{"path":{{"type":"path","path":"file://{}"}},"access":"write"}},"#, root.display()))
        .collect();
    format!(
        r#"{{"permissions":{{"type":"managed","network":"restricted","file_system":{{"type":"restricted","entries":[{entries}{{"path":{{"type":"special","value":{{"kind":"root"}}}},"access":"read"}}]}}}},"cwd":"file:///","windowsSandboxLevel":"disabled"}}"#
    )
}

async fn send_start(client: &mut RawClient, process: &str, argv: &str, sandbox: Option<&str>) -> Result<()> {
    let sandbox = sandbox.map(|sandbox| format!(r#","sandbox":{sandbox}"#)).unwrap_or_default();
    let params =
        format!(r#"{{"processId":"{process}","argv":{argv},"cwd":"file:///","env":{{}},"tty":false{sandbox}}}"#);
    client.send("process/start", &params).await.map(drop)
}

async fn one_shot(client: &mut RawClient, number: &mut usize, sandbox: Option<&str>) -> Result<Duration> {
    *number += 1;
    let start = Instant::now();
    send_start(client, &format!("p{number}"), &format!(r#"["{TRUE}"]"#), sandbox).await?;
    client.wait_for_process_closed().await?;
    Ok(start.elapsed())
}

/// Runs [`TRUE`] in a bubblewrap with mounts and namespaces like those of our sandbox, the three protected names included.
fn bubblewrap(root: &Path) -> Result<Duration> {
    let masked: Vec<String> =
        [".git", ".agents", ".codex"].map(|name| root.join(name).display().to_string()).into_iter().collect();
    let masks = masked.iter().flat_map(|path| ["--perms", "555", "--tmpfs", path, "--remount-ro", path]);
    let root = root.display().to_string();
    let start = Instant::now();
    let status = Command::new("/usr/bin/bwrap")
        .args(["--as-pid-1", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--bind", &root, &root])
        .args(masks)
        .args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-net", "--proc", "/proc"])
        .args(["--cap-drop", "ALL", "--", TRUE])
        .env_clear()
        .stdin(Stdio::null())
        .status()
        .context("cannot run bubblewrap")?;
    ensure!(status.success(), "bubblewrap failed: {status}");
    Ok(start.elapsed())
}

pub(crate) async fn figures() -> Result<Vec<Row>> {
    let folder = tempfile::tempdir()?;
    let sandbox = policy(&[folder.path()]);
    let mut rows = latency(folder.path(), &sandbox).await?;
    rows.push(throughput(&sandbox).await?);
    rows.extend(first_one_shots(folder.path(), &sandbox).await?);
    rows.push(small_reads(folder.path(), &sandbox).await?);
    rows.push(output::in_sandbox(&sandbox).await?);
    rows.push(memory(&sandbox).await?);
    Ok(rows)
}

async fn latency(folder: &Path, sandbox: &str) -> Result<Vec<Row>> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut plain, mut bwrap) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0;
    one_shot(&mut client, &mut number, Some(sandbox)).await?;
    for _ in 0..ROUNDS {
        for _ in 0..ONE_SHOTS_PER_ROUND {
            ours.push(one_shot(&mut client, &mut number, Some(sandbox)).await?);
        }
        for _ in 0..ONE_SHOTS_PER_ROUND {
            plain.push(one_shot(&mut client, &mut number, None).await?);
        }
        for _ in 0..ONE_SHOTS_PER_ROUND / 4 {
            bwrap.push(bubblewrap(folder)?);
        }
    }
    let ours = p50(ours);
    Ok(vec![
        Row {
            figure: "sandboxed one-shot, p50, compared with `bwrap`",
            ours,
            limit: Some(p50(bwrap)),
            goal: Goal::UpToTimes(0.3),
        },
        Row {
            figure: "the same, compared with a one-shot without a sandbox",
            ours,
            limit: Some(p50(plain)),
            goal: Goal::UpToTimes(1.7),
        },
    ])
}

async fn throughput(sandbox: &str) -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let mut number = 0;
    one_shot(&mut client, &mut number, Some(sandbox)).await?;
    let (mut ours, mut plain) = (Duration::ZERO, Duration::ZERO);
    const REPETITIONS: usize = 4;
    for _ in 0..REPETITIONS {
        for (took, sandbox) in [(&mut ours, Some(sandbox)), (&mut plain, None)] {
            let start = Instant::now();
            let (mut started, mut closed) = (0, 0);
            while closed < THROUGHPUT_ONE_SHOTS / REPETITIONS {
                while started < THROUGHPUT_ONE_SHOTS / REPETITIONS && started - closed < IN_FLIGHT {
                    number += 1;
                    started += 1;
                    send_start(&mut client, &format!("p{number}"), &format!(r#"["{TRUE}"]"#), sandbox).await?;
                }
                let message = client.next().await?;
                closed += usize::from(is_notification(&message, "process/closed"));
            }
            *took += start.elapsed();
        }
    }
    let rate = |took: Duration| Measurement::PerSecond(THROUGHPUT_ONE_SHOTS as f64 / took.as_secs_f64());
    Ok(Row {
        figure: "1,000 sandboxed one-shots, 64 in flight, compared with no sandbox",
        ours: rate(ours),
        limit: Some(rate(plain)),
        goal: Goal::AtLeastTimes(0.5),
    })
}

async fn first_one_shots(folder: &Path, sandbox: &str) -> Result<Vec<Row>> {
    // Sessions end with their connections, so that their sandboxes do not pile up.
    let server = TestServer::with_args(&["--session-ttl", "1ms"]).await;
    // In memory: on ext4, making a directory takes long while many others were deleted in the last seconds, as here in the round before.
    let make_root = |_| tempfile::tempdir_in("/dev/shm");
    let many: Vec<tempfile::TempDir> = (0..MANY_ROOTS).map(make_root).collect::<Result<_, _>>()?;
    let many_roots = policy(&many.iter().map(tempfile::TempDir::path).collect::<Vec<_>>());
    let (mut one_root, mut roots, mut bwrap) = (Vec::new(), Vec::new(), Vec::new());
    let mut number = 0;
    for _ in 0..FIRST_ONE_SHOTS {
        let mut client = RawClient::connect(server.url()).await?;
        one_root.push(one_shot(&mut client, &mut number, Some(sandbox)).await?);
        let mut client = RawClient::connect(server.url()).await?;
        roots.push(one_shot(&mut client, &mut number, Some(&many_roots)).await?);
        bwrap.push(bubblewrap(folder)?);
    }
    let one_root = p50(one_root);
    Ok(vec![
        Row {
            figure: "first sandboxed one-shot of a session, p50, compared with `bwrap`",
            ours: one_root,
            limit: Some(p50(bwrap)),
            goal: Goal::UpToTimes(1.5),
        },
        Row {
            figure: "the same with 200 roots, compared with one root",
            ours: p50(roots),
            limit: Some(one_root),
            goal: Goal::UpToTimes(1.5),
        },
    ])
}

async fn small_reads(folder: &Path, sandbox: &str) -> Result<Row> {
    let path = folder.join("small");
    std::fs::write(&path, vec![b'x'; 1024])?;
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let plain_params = format!(r#"{{"path":"file://{}"}}"#, path.display());
    let params = format!(r#"{{"path":"file://{}","sandbox":{sandbox}}}"#, path.display());
    client.ask("fs/readFile", &params).await?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (samples, params) in [(&mut ours, &params), (&mut plain, &plain_params)] {
            for _ in 0..READS_PER_ROUND {
                let start = Instant::now();
                let answer = client.ask("fs/readFile", params).await?;
                samples.push(start.elapsed());
                ensure!(answer.len() > 1024, "the file was not read");
            }
        }
    }
    Ok(Row {
        figure: "sandboxed `fs/readFile` of 1 KiB, p50, compared with no sandbox",
        ours: p50(ours),
        limit: Some(p50(plain)),
        goal: Goal::UpToTimes(1.5),
    })
}

/// The memory that the processes of an idle sandbox share with no other process.
async fn memory(sandbox: &str) -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let before = descendants(server.pid());
    one_shot(&mut client, &mut 0, Some(sandbox)).await?;
    let private = |pid: u32| -> usize {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        let lines = rollup.lines().filter(|line| line.starts_with("Private_"));
        lines.filter_map(|line| line.split_ascii_whitespace().nth(1)?.parse::<usize>().ok()).sum::<usize>() << 10
    };
    // Processes that wait for the next commands share the memory of the launcher, which has the lowest number.
    let own: Vec<u32> = descendants(server.pid()).into_iter().filter(|pid| !before.contains(pid)).collect();
    let memory_of = |pid: u32| std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_shared = |pid: u32| own.iter().any(|other| *other < pid && memory_of(*other) == memory_of(pid));
    let bytes: usize = own.iter().copied().filter(|pid| !is_shared(*pid)).map(private).sum();
    ensure!(bytes > 0, "the sandbox was not found");
    Ok(Row {
        figure: "memory of an idle sandbox, not shared with others",
        ours: Measurement::Bytes(bytes as f64),
        limit: None,
        goal: Goal::UpTo(Measurement::Bytes(f64::from(2 << 20))),
    })
}
