//! A TCP proxy between a client and a server. A test can make it reset, freeze, slow down or refuse connections. It
//! does not know what the bytes mean. Start reading at the methods of [`CuttingProxy`]; they use "cut" for "reset".

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Receive buffer for each socket of a slow connection. It must hold several loopback packets, because with a smaller
/// buffer the kernel transfers next to nothing.
const SLOW_BUFFER_BYTES: usize = 256 << 10;
/// Bytes that a slow connection reads at a time.
const SLOW_READ_BYTES: usize = 16 << 10;
/// How far a slow connection may fall behind its rate and still catch up.
const SLOW_CATCH_UP: Duration = Duration::from_millis(200);

/// A proxy on a free loopback port. Dropping it resets all its connections.
pub struct CuttingProxy {
    address: String,
    cut: broadcast::Sender<()>,
    frozen: Arc<watch::Sender<FreezeState>>,
    refusing: Arc<AtomicBool>,
    traffic: Arc<Traffic>,
    accepting: JoinHandle<()>,
}

/// The bytes of all connections, in both directions together, and the limits that the test has set.
#[derive(Default)]
struct Traffic {
    passed: AtomicU64,
    /// Number of the byte after which the connection that carries it is reset. 0: none.
    cut_at: AtomicU64,
    cuts: AtomicU64,
    /// How many of the next new connections are reset after a random number of bytes.
    cuts_to_make: AtomicU64,
    /// Upper limit for that random number.
    max_bytes: AtomicU64,
    /// State of the random number generator.
    random: AtomicU64,
    /// Number of bytes after which every new connection is reset. 0: off.
    cut_each_after: AtomicU64,
    /// Largest number of bytes in a second in each direction. 0: no limit.
    bytes_per_second: AtomicU64,
}

impl Traffic {
    /// Decides after how many of its own bytes a new connection is reset. None if it is not reset. Each random number
    /// uses up one of `cuts_to_make`.
    fn draw_cut_position(&self) -> Option<u64> {
        let each = self.cut_each_after.load(Ordering::SeqCst);
        if each > 0 {
            return Some(each);
        }
        let left = self.cuts_to_make.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.ok()?;
        // A linear congruential generator: the same seed gives the same positions.
        let next =
            |random: u64| random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let state = self.random.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |random| Some(next(random)));
        let fraction = (next(state.unwrap_or_else(|random| random)) >> 11) as f64 / (1_u64 << 53) as f64;
        // Every order of magnitude is equally likely, so that resets hit handshakes, small answers and large transfers.
        Some((self.max_bytes.load(Ordering::SeqCst) as f64).powf(fraction) as u64)
    }

    /// Counts `count` bytes that a connection has received. Returns how many of them may pass, and whether the
    /// connection is then reset.
    fn admit(&self, count: usize, connection: &ConnectionTraffic) -> (usize, bool) {
        if let Some(cut_at) = connection.cut_at {
            let before = connection.passed.fetch_add(count as u64, Ordering::SeqCst);
            if before >= cut_at {
                // The other direction of this connection has reached the limit, and has counted the cut.
                return (0, true);
            }
            if cut_at <= before + count as u64 {
                self.cuts.fetch_add(1, Ordering::SeqCst);
                return ((cut_at - before) as usize, true);
            }
        }
        let before = self.passed.fetch_add(count as u64, Ordering::SeqCst);
        let cut_at = self.cut_at.load(Ordering::SeqCst);
        if cut_at > before && cut_at <= before + count as u64 {
            self.cut_at.store(0, Ordering::SeqCst);
            self.cuts.fetch_add(1, Ordering::SeqCst);
            return ((cut_at - before) as usize, true);
        }
        (count, false)
    }
}

/// Which connections are frozen.
#[derive(Clone, Copy, Default)]
struct FreezeState {
    /// How often [`CuttingProxy::freeze`] was called. A connection that is older than the last call stays frozen.
    freezes: u64,
    /// Whether new connections are frozen too.
    includes_new: bool,
}

/// The bytes of one connection, in both directions together.
#[derive(Default)]
struct ConnectionTraffic {
    /// Number of bytes so far. Counted only if there is a `cut_at`.
    passed: AtomicU64,
    /// Number of bytes after which the connection is reset. None if it is not reset.
    cut_at: Option<u64>,
}

impl CuttingProxy {
    /// Starts a proxy in front of the server at `IP:PORT`.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cut, _) = broadcast::channel(1);
        let frozen = Arc::new(watch::Sender::new(FreezeState::default()));
        let refusing = Arc::new(AtomicBool::new(false));
        let traffic = Arc::new(Traffic::default());
        let target = target.to_owned();
        let accepting = tokio::spawn({
            let (cut, frozen, refusing) = (cut.clone(), Arc::clone(&frozen), Arc::clone(&refusing));
            let traffic = Arc::clone(&traffic);
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    if refusing.load(Ordering::Relaxed) {
                        continue;
                    }
                    let Ok(server) = TcpStream::connect(&target).await else { continue };
                    let traffic = Arc::clone(&traffic);
                    tokio::spawn(forward(client, server, cut.subscribe(), frozen.subscribe(), traffic));
                }
            }
        });
        Self { address, cut, frozen, refusing, traffic, accepting }
    }

    /// The WebSocket URL for clients.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Resets every open connection. Bytes that are on their way are lost.
    pub fn cut(&self) {
        let _ = self.cut.send(());
    }

    /// Resets the connection over which byte number `byte` passes, right after that byte. Bytes are counted as in
    /// [`bytes_passed`](Self::bytes_passed), and the first byte has number 1.
    pub fn cut_at(&self, byte: u64) {
        self.traffic.cut_at.store(byte, Ordering::SeqCst);
    }

    /// Resets each of the next `connections` new connections after a random number of bytes, at most `max_bytes`. The
    /// same seed gives the same numbers.
    pub fn cut_at_random(&self, connections: u64, max_bytes: u64, seed: u64) {
        self.traffic.max_bytes.store(max_bytes, Ordering::SeqCst);
        self.traffic.random.store(seed, Ordering::SeqCst);
        self.traffic.cuts_to_make.store(connections, Ordering::SeqCst);
    }

    /// Resets every new connection after this many bytes, counted over both directions. 0 turns this off for new
    /// connections.
    pub fn cut_each_after(&self, bytes: u64) {
        self.traffic.cut_each_after.store(bytes, Ordering::SeqCst);
    }

    /// Limits new connections to this many bytes in a second in each direction. 0: no limit.
    pub fn slow_down(&self, bytes_per_second: u64) {
        self.traffic.bytes_per_second.store(bytes_per_second, Ordering::SeqCst);
    }

    /// How many bytes have passed since the start, over all connections and in both directions. Inexact after a reset
    /// at a byte: the last read before it, up to 64 KiB, counts as a whole or not at all.
    pub fn bytes_passed(&self) -> u64 {
        self.traffic.passed.load(Ordering::SeqCst)
    }

    /// How many connections were reset because a certain byte or number of bytes had passed. Resets by
    /// [`cut`](Self::cut) do not count.
    pub fn cuts_made(&self) -> u64 {
        self.traffic.cuts.load(Ordering::SeqCst)
    }

    /// Lets no byte pass in either direction and closes nothing, as if the peer had vanished. Applies to open and new
    /// connections.
    pub fn freeze(&self) {
        self.frozen.send_modify(|frozen| *frozen = FreezeState { freezes: frozen.freezes + 1, includes_new: true });
    }

    /// Lets bytes pass over new connections again. Connections that are frozen stay frozen.
    pub fn thaw_new(&self) {
        self.frozen.send_modify(|frozen| frozen.includes_new = false);
    }

    /// Decides about new connections: with true they are accepted and closed at once, with false they reach the
    /// server.
    pub fn refuse(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Relaxed);
    }
}

impl Drop for CuttingProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn forward(
    client: TcpStream,
    server: TcpStream,
    mut cut: broadcast::Receiver<()>,
    frozen: watch::Receiver<FreezeState>,
    traffic: Arc<Traffic>,
) {
    for socket in [&client, &server] {
        let _ = socket.set_nodelay(true);
        // A socket with a linger time of zero is reset when it is dropped, so that both sides lose the connection
        // abruptly. This also happens if one side closes its socket in an orderly way.
        let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }
    let bytes_per_second = traffic.bytes_per_second.load(Ordering::SeqCst);
    if bytes_per_second > 0 {
        for socket in [&client, &server] {
            // With larger buffers the kernel would accept megabytes for a connection that transfers little.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, SLOW_BUFFER_BYTES);
        }
    }
    let connection = ConnectionTraffic { passed: AtomicU64::new(0), cut_at: traffic.draw_cut_position() };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        _ = cut.recv() => {}
        () = copy(client_read, server_write, frozen.clone(), &traffic, &connection) => {}
        () = copy(server_read, client_write, frozen, &traffic, &connection) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut frozen: watch::Receiver<FreezeState>,
    traffic: &Traffic,
    connection: &ConnectionTraffic,
) {
    let freezes_before = frozen.borrow().freezes;
    let mut due = Instant::now();
    let bytes_per_second = traffic.bytes_per_second.load(Ordering::SeqCst);
    let mut buffer = vec![0; if bytes_per_second > 0 { SLOW_READ_BYTES } else { 64 << 10 }];
    loop {
        let count = tokio::select! {
            biased;
            () = until_frozen(&mut frozen, freezes_before) => std::future::pending().await,
            count = from.read(&mut buffer) => count,
        };
        match count {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let (count, is_cut) = traffic.admit(count, connection);
                if to.write_all(&buffer[..count]).await.is_err() || is_cut {
                    return;
                }
                if bytes_per_second > 0 {
                    // After a late wake-up the connection catches up, but after a long idle time only a little.
                    due = due.max(Instant::now() - SLOW_CATCH_UP)
                        + Duration::from_secs_f64(count as f64 / bytes_per_second as f64);
                    // sleep: waiting is what makes the connection slow.
                    tokio::time::sleep_until(due).await;
                }
            }
        }
    }
}

/// Waits until a connection is frozen. A frozen connection stays frozen until it is closed.
async fn until_frozen(frozen: &mut watch::Receiver<FreezeState>, freezes_before: u64) {
    let _ = frozen.wait_for(|frozen| frozen.includes_new || frozen.freezes > freezes_before).await;
}
