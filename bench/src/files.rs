//! Measures requests about files: one small file, many requests at once, a walk over directories, and a search.
//! Copies of large files are in `copy.rs`.

pub(crate) mod copy;
mod tree;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use testkit::TestServer;

use crate::peer::{self, PeerProcess};
use crate::processors::CpuPinning;
use crate::raw::{RawClient, is_notification};
use crate::sample::p50;
use crate::table::{Goal, Row};

/// Requests that are measured one at a time.
const SINGLE_REQUESTS: usize = 2000;
/// Requests in one batch, which are sent at once.
const AT_ONCE: usize = 1000;
/// Batches that are measured.
const BATCHES: usize = 50;
/// Files and directories that are walked. They are in two directory trees, whose roots are counted too, because one
/// answer cannot hold all of them.
const ENTRIES: usize = 50_000;
/// Measurements of the walk and of the search.
const REPETITIONS: usize = 5;

pub(crate) async fn small_files() -> Result<Vec<Row>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("small");
    std::fs::write(&file, [b'x'; 1024])?;
    let params = format!(r#"{{"path":"file://{}"}}"#, file.display());
    let mut rows = single_reads(&params).await?;
    rows.push(single_writes(directory.path(), &params).await?);
    rows.push(many_at_once(&file, &params).await?);
    Ok(rows)
}

/// Measures one request after the other. After each request, an echo of a message as large as the answer is measured,
/// so that noise affects both equally. On a machine with one processor, the first row is left out.
async fn single_reads(params: &str) -> Result<Vec<Row>> {
    let server = TestServer::start().await;
    let peer = PeerProcess::start(peer::ARGUMENT)?;
    let mut client = RawClient::connect(server.url()).await?;
    let mut echo_client = RawClient::connect_without_handshake(&peer.url).await?;
    let answer = client.ask("fs/readFile", params).await?;
    ensure!(answer.len() > 1024 && answer.len() < 2048, "{}", String::from_utf8_lossy(&answer));
    let same_size = "x".repeat(answer.len());
    let processes = [server.pid(), peer.pid()];
    let mut rows = Vec::new();
    for (figure, on_two) in [
        ("`fs/readFile` of 1 KiB, p50, compared with a WebSocket echo, on two processors", true),
        ("the same on one processor", false),
    ] {
        let pinning =
            if on_two { CpuPinning::pin_apart(&processes)? } else { Some(CpuPinning::pin_together(&processes)?) };
        let Some(_pinning) = pinning else { continue };
        let (mut read, mut echo) = (Vec::new(), Vec::new());
        for _ in 0..SINGLE_REQUESTS {
            read.push(timed(client.ask("fs/readFile", params)).await?);
            echo.push(timed(echo_client.echo(&same_size)).await?);
        }
        rows.push(Row { figure, ours: p50(read), limit: Some(p50(echo)), goal: Goal::UpToTimes(1.5) });
    }
    Ok(rows)
}

/// Measures requests that overwrite a file, in turn with requests that read another file.
async fn single_writes(directory: &Path, read_params: &str) -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let file = directory.join("written");
    let mut data = Vec::new();
    protocol::encode_base64_into(&mut data, &[b'x'; 1024]);
    let data = String::from_utf8(data)?;
    let params = format!(r#"{{"path":"file://{}","dataBase64":"{data}"}}"#, file.display());
    client.ask("fs/writeFile", &params).await?;
    ensure!(file.metadata()?.len() == 1024);
    let _pinning = CpuPinning::pin_apart(&[server.pid()])?;
    let (mut written, mut read) = (Vec::new(), Vec::new());
    for _ in 0..SINGLE_REQUESTS {
        written.push(timed(client.ask("fs/writeFile", &params)).await?);
        read.push(timed(client.ask("fs/readFile", read_params)).await?);
    }
    Ok(Row {
        figure: "`fs/writeFile` of 1 KiB, p50, compared with `fs/readFile`",
        ours: p50(written),
        limit: Some(p50(read)),
        goal: Goal::UpToTimes(2.0),
    })
}

async fn many_at_once(file: &Path, params: &str) -> Result<Row> {
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    // `metadata_if_cached` answers only for files on devices that are known to be local. This call and this request
    // make the device known here and in the server.
    files::metadata(files::FileRoot::host(), file, files::Follow::Yes)?;
    client.ask("fs/getMetadata", params).await?;
    let (mut many, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..BATCHES {
        let requests = client.encode_requests("fs/getMetadata", params, AT_ONCE);
        many.push(timed(client.ask_all(&requests, AT_ONCE)).await?);
        let start = Instant::now();
        for _ in 0..AT_ONCE {
            ensure!(
                matches!(files::metadata_if_cached(files::FileRoot::host(), file), Some(Ok(_))),
                "{} is not in the cache",
                file.display()
            );
        }
        direct.push(start.elapsed());
    }
    Ok(Row {
        figure: "1,000 `fs/getMetadata` at once, compared with the same calls without a server",
        ours: p50(many),
        limit: Some(p50(direct)),
        goal: Goal::UpToTimes(1.5),
    })
}

async fn timed<T>(work: impl Future<Output = Result<T>>) -> Result<Duration> {
    let start = Instant::now();
    work.await?;
    Ok(start.elapsed())
}

pub(crate) async fn walk() -> Result<Row> {
    let directory = tempfile::tempdir()?;
    let halves = tree::make_walk_trees(directory.path(), ENTRIES)?;
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut find) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        let found = count_printed_lines(Command::new("find").arg(directory.path()))?;
        find.push(start.elapsed());
        ensure!(found > ENTRIES, "find found {found}");
        let start = Instant::now();
        let mut entries = 0;
        for half in &halves {
            let params = format!(
                r#"{{"path":"file://{}","options":{{"maxDepth":64,"maxDirectories":10000,"maxEntries":50000,"followDirectorySymlinks":false}}}}"#,
                half.display()
            );
            client.send("fs/walk", &params).await?;
        }
        for _ in &halves {
            let answer = client.next().await?;
            ensure!(answer.ends_with(br#""truncated":false}}"#), "the walk was cut short");
            entries += memchr::memmem::find_iter(&answer, br#"{"path":"#).count();
        }
        ours.push(start.elapsed());
        ensure!(entries + halves.len() == ENTRIES, "the walks found {entries}");
    }
    Ok(Row {
        figure: "`fs/walk` of 50,000 entries, compared with `find`",
        ours: p50(ours),
        limit: Some(p50(find)),
        goal: Goal::UpToTimes(2.0),
    })
}

pub(crate) async fn search() -> Result<Row> {
    let root = tree::make_search_tree()?;
    let server = TestServer::start().await;
    let mut client = RawClient::connect(server.url()).await?;
    let (mut ours, mut rg) = (Vec::new(), Vec::new());
    for turn in 0..REPETITIONS {
        let start = Instant::now();
        let expected = count_printed_lines(Command::new("rg").args(["--line-number", tree::PATTERN]).arg(&root))?;
        rg.push(start.elapsed());
        let start = Instant::now();
        let found = search_once(&mut client, &root, turn).await?;
        ours.push(start.elapsed());
        ensure!(found == expected && found > 0, "rg found {expected} lines, we {found}");
    }
    Ok(Row {
        figure: "`fs/search` over 75,000 files, 1.2 GB, compared with `rg`",
        ours: p50(ours),
        limit: Some(p50(rg)),
        goal: Goal::UpToTimes(1.5),
    })
}

async fn search_once(client: &mut RawClient, root: &Path, turn: usize) -> Result<usize> {
    let pattern = serde_json::to_string(tree::PATTERN)?;
    let params = format!(r#"{{"searchId":"s{turn}","path":"file://{}","pattern":{pattern}}}"#, root.display());
    client.send("fs/search", &params).await?;
    let mut lines = 0;
    loop {
        let message = client.next().await?;
        if !is_notification(&message, "fs/found") {
            ensure!(!message.starts_with(br#"{"error""#), "{}", String::from_utf8_lossy(&message));
            return Ok(lines);
        }
        lines += memchr::memmem::find_iter(&message, br#""number":"#).count();
    }
}

/// Runs a command and counts the lines that it prints.
fn count_printed_lines(command: &mut Command) -> Result<usize> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(memchr::memchr_iter(b'\n', &output.stdout).count())
}
