//! Measures how fast 1 GiB passes from a TCP port to a program through `exec-server port`, and through socat, a plain TCP proxy.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use testkit::{TestServer, binary};

use crate::table::{Goal, Measurement, Row};

const BYTES: usize = 1 << 30;
/// How many bytes the target writes at once and the reader reads at once.
const BLOCK_BYTES: usize = 256 << 10;
const REPETITIONS: usize = 5;
/// How long socat may take until it listens.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);

/// A proxy under measurement, which is killed when it is dropped.
struct Proxy {
    child: Child,
    address: String,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The process may have ended already.
        let _killed_or_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Measures the rate of both proxies. If socat cannot be started, the figure has no limit to be compared with.
pub(crate) async fn one_gibibyte() -> Result<Row> {
    let server = TestServer::start().await;
    let target = start_target()?;
    let forwarding = forward(server.url(), target)?;
    let socat = match start_socat(target) {
        Ok(socat) => Some(socat),
        Err(error) => {
            eprintln!("socat is not measured: {error:#}");
            None
        }
    };
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        ours.push(read_gibibyte(&forwarding.address)?);
        if let Some(socat) = &socat {
            bare.push(read_gibibyte(&socat.address)?);
        }
    }
    let rate = |mut times: Vec<Duration>| {
        times.sort_unstable();
        let median = times.get(times.len() / 2)?;
        Some(Measurement::BytesPerSecond(BYTES as f64 / median.as_secs_f64()))
    };
    Ok(Row {
        figure: "1 GiB through `exec-server port`, compared with socat",
        ours: rate(ours).context("nothing was measured")?,
        limit: rate(bare),
        goal: Goal::AtLeastTimes(0.4),
    })
}

/// Starts a TCP server that sends [`BYTES`] bytes on each connection. Its thread ends with this program.
fn start_target() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        let block = vec![0; BLOCK_BYTES];
        for mut stream in listener.incoming().flatten() {
            // `start_socat` connects only to learn whether socat listens, and closes the connection before it has read
            // everything.
            let _sent_or_gone = (0..BYTES / BLOCK_BYTES).try_for_each(|_| stream.write_all(&block));
        }
    });
    Ok(port)
}

fn forward(url: &str, target: u16) -> Result<Proxy> {
    let mut command = Command::new(binary());
    command.args(["port", "--connect", url, &format!("0:127.0.0.1:{target}")]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let stderr = child.stderr.take().context("stderr is a pipe")?;
    let mut line = String::new();
    BufReader::new(stderr).read_line(&mut line)?;
    let address = line.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next());
    let address = address.with_context(|| format!("unexpected line: {line}"))?.to_owned();
    Ok(Proxy { child, address })
}

fn start_socat(target: u16) -> Result<Proxy> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork");
    let mut command = Command::new("socat");
    // With its default buffer of 8 KiB socat is slower. 64 KiB is the size that exec-server uses.
    command.args(["-b", "65536", &listen, &format!("TCP:127.0.0.1:{target}")]);
    let child = command.stdin(Stdio::null()).spawn().context("cannot start socat; install the package \"socat\"")?;
    let proxy = Proxy { child, address: format!("127.0.0.1:{port}") };
    let start = Instant::now();
    while TcpStream::connect(&proxy.address).is_err() {
        if start.elapsed() > LISTEN_TIMEOUT {
            bail!("socat does not listen");
        }
        std::thread::yield_now();
    }
    Ok(proxy)
}

fn read_gibibyte(address: &str) -> Result<Duration> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let (mut block, mut total) = (vec![0; BLOCK_BYTES], 0);
    loop {
        match stream.read(&mut block)? {
            0 => break,
            length => total += length,
        }
    }
    ensure!(total == BYTES, "{total} bytes came");
    Ok(start.elapsed())
}
