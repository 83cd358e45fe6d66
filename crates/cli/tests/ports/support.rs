//! Starts `exec-server port`, and TCP servers for it to reach.

use std::process::Stdio;
use std::time::Duration;

use testkit::{binary, hide_configuration};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, Lines,
};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::{Child, ChildStderr, Command};

/// Bytes of a pattern that are written or compared at once. Not a size that the code under test uses.
const BLOCK_BYTES: usize = 48 << 10;

/// Time limit for everything that a test waits for. Even on a loaded machine it takes less.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// A running `exec-server port`.
pub(crate) struct Forwarding {
    pub(crate) child: Child,
    stderr: Lines<BufReader<ChildStderr>>,
    /// The addresses on this machine, in the order of the arguments.
    pub(crate) addresses: Vec<String>,
}

impl Forwarding {
    /// Forwards a free port to each target (`PORT` or `HOST:PORT`), through the server at `url`.
    pub(crate) async fn start(url: &str, targets: &[String]) -> Self {
        Self::start_with(&["--connect", url], targets, |command| command).await
    }

    /// The same with other arguments, which name the environment. `prepare` can change the command.
    pub(crate) async fn start_with(
        environment: &[&str],
        targets: &[String],
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Self {
        let specs: Vec<String> = targets.iter().map(|target| format!("0:{target}")).collect();
        let mut command = port_command(environment);
        let mut child = prepare(&mut command).args(&specs).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut addresses = Vec::new();
        for _ in &specs {
            let line = in_time(stderr.next_line()).await.unwrap().expect("it ends before it listens");
            let address = line.strip_prefix("forwarding ").and_then(|rest| rest.split(' ').next());
            addresses.push(address.unwrap_or_else(|| panic!("unexpected line: {line}")).to_owned());
        }
        Self { child, stderr, addresses }
    }

    /// Forwards one port.
    pub(crate) async fn one(url: &str, port: u16) -> Self {
        Self::start(url, &[port.to_string()]).await
    }

    /// A new connection to the first forwarded port.
    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.addresses[0]).await.unwrap()
    }

    /// Connects to the first forwarded port, and returns the error of a connection that is broken at once.
    pub(crate) async fn connect_to_error(&self) -> std::io::ErrorKind {
        let broken = async { TcpStream::connect(&self.addresses[0]).await?.read_u8().await };
        in_time(broken).await.unwrap_err().kind()
    }

    /// The next line on stderr.
    pub(crate) async fn line(&mut self) -> String {
        in_time(self.stderr.next_line()).await.unwrap().expect("stderr has ended")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }
}

/// The binary with the command `port`.
pub(crate) fn port_command(args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.arg("port").args(args).stdin(Stdio::null()).kill_on_drop(true);
    hide_configuration(&mut command);
    command
}

pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, future).await.expect("it takes too long")
}

/// A TCP server on a free loopback port that gives each connection to `serve`. Returns its port.
pub(crate) async fn tcp_server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

/// A server that sends back what it gets, and ends its direction when the client has ended its own.
pub(crate) async fn echo_server() -> u16 {
    tcp_server(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ended = tokio::io::copy(&mut read, &mut write).await;
        let _ended = write.shutdown().await;
    })
    .await
}

/// A loopback port on which nobody listens. No other socket gets it while this value lives.
pub(crate) struct ClosedPort {
    _socket: TcpSocket,
    pub(crate) number: u16,
}

impl ClosedPort {
    pub(crate) fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let number = socket.local_addr().unwrap().port();
        Self { _socket: socket, number }
    }
}

/// Bytes that look random and are the same each time.
pub(crate) struct Pattern(u64);

impl Pattern {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    pub(crate) fn fill(&mut self, buffer: &mut [u8]) {
        for bytes in buffer.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.copy_from_slice(&self.0.to_le_bytes()[..bytes.len()]);
        }
    }
}

/// Writes `total` bytes of a pattern, and ends the direction.
pub(crate) async fn send_pattern(mut to: impl AsyncWrite + Unpin, seed: u64, total: usize) {
    let (mut pattern, mut left) = (Pattern::new(seed), total);
    let mut block = vec![0; BLOCK_BYTES];
    while left > 0 {
        let length = left.min(block.len());
        pattern.fill(&mut block);
        to.write_all(&block[..length]).await.unwrap();
        left -= length;
    }
    to.shutdown().await.unwrap();
}

/// Reads to the end, and checks that exactly these bytes of a pattern have come.
pub(crate) async fn expect_pattern(mut from: impl AsyncRead + Unpin, seed: u64, total: usize) {
    let (mut pattern, mut left) = (Pattern::new(seed), total);
    let (mut expected, mut block) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    while left > 0 {
        let length = left.min(block.len());
        pattern.fill(&mut expected);
        from.read_exact(&mut block[..length]).await.unwrap();
        assert!(block[..length] == expected[..length], "other bytes came, {left} bytes before the end");
        left -= length;
    }
    assert_eq!(from.read(&mut block).await.unwrap(), 0, "more bytes came");
}
