//! A TCP proxy between a client and a server that can break or freeze what passes through it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What the kernel may hold for one end of a slow connection. With less than a few packets of loopback it carries next to nothing.
const SLOW_BUFFER_BYTES: usize = 256 << 10;
/// What passes over a slow connection at once.
const SLOW_PIECE_BYTES: usize = 16 << 10;
/// How far behind its rate a slow connection may be and still make up for it.
const SLOW_CATCH_UP: Duration = Duration::from_millis(200);

/// A proxy on loopback. Ends with its value.
pub struct CuttingProxy {
    address: String,
    cut: broadcast::Sender<()>,
    frozen: Arc<watch::Sender<Frozen>>,
    refusing: Arc<AtomicBool>,
    traffic: Arc<Traffic>,
    accepting: JoinHandle<()>,
}

/// What has passed, in both directions together, and where to cut.
#[derive(Default)]
struct Traffic {
    passed: AtomicU64,
    /// 0: nowhere.
    cut_at: AtomicU64,
    cuts: AtomicU64,
    /// Connections that are still to be cut at a place of their own.
    cuts_to_make: AtomicU64,
    /// Each of them after at most this many bytes.
    longest: AtomicU64,
    random: AtomicU64,
    /// Every connection is cut after this many bytes. 0: none is.
    cut_each_after: AtomicU64,
    /// Bytes that may pass in a second and direction. 0: as many as come.
    per_second: AtomicU64,
}

impl Traffic {
    /// Where a new connection is to be cut, counted from its own beginning.
    fn draw(&self) -> Option<u64> {
        let each = self.cut_each_after.load(Ordering::SeqCst);
        if each > 0 {
            return Some(each);
        }
        let left = self.cuts_to_make.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.ok()?;
        // An ordinary linear congruence: the same seed gives the same places.
        let next =
            |random: u64| random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let before = self.random.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |random| Some(next(random)));
        let chance = (next(before.unwrap_or_else(|random| random)) >> 11) as f64 / (1_u64 << 53) as f64;
        // Every order of magnitude is as likely as the next: handshakes, answers and bulk are all hit.
        Some((self.longest.load(Ordering::SeqCst) as f64).powf(chance) as u64)
    }

    /// How many of `count` bytes may pass, and whether the cut comes then.
    fn admit(&self, count: usize, own: &Own) -> (usize, bool) {
        if let Some(cut_at) = own.cut_at {
            let before = own.passed.fetch_add(count as u64, Ordering::SeqCst);
            if before >= cut_at {
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

/// Which connections move no more.
#[derive(Clone, Copy, Default)]
struct Frozen {
    /// How often everything was frozen. A connection that is older than the last time stays frozen.
    times: u64,
    /// New connections are frozen too.
    is_for_all: bool,
}

/// What has passed over one connection, and where it is cut.
#[derive(Default)]
struct Own {
    passed: AtomicU64,
    cut_at: Option<u64>,
}

impl CuttingProxy {
    /// A proxy in front of `IP:PORT`.
    pub async fn start(target: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (cut, _) = broadcast::channel(1);
        let frozen = Arc::new(watch::Sender::new(Frozen::default()));
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
                    tokio::spawn(carry(client, server, cut.subscribe(), frozen.subscribe(), traffic));
                }
            }
        });
        Self { address, cut, frozen, refusing, traffic, accepting }
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// Resets every connection; whatever is on its way is lost.
    pub fn cut(&self) {
        let _ = self.cut.send(());
    }

    /// Resets the connection over which the byte of this number passes, counted from 1 over all connections and both directions,
    /// after that byte. Once.
    pub fn cut_at(&self, byte: u64) {
        self.traffic.cut_at.store(byte, Ordering::SeqCst);
    }

    /// Resets each of the next `connections` after a random number of bytes, at most `longest`. The same seed gives the same places.
    pub fn cut_at_random(&self, connections: u64, longest: u64, seed: u64) {
        self.traffic.longest.store(longest, Ordering::SeqCst);
        self.traffic.random.store(seed, Ordering::SeqCst);
        self.traffic.cuts_to_make.store(connections, Ordering::SeqCst);
    }

    /// Resets every new connection after this many bytes, in both directions together.
    pub fn cut_each_after(&self, bytes: u64) {
        self.traffic.cut_each_after.store(bytes, Ordering::SeqCst);
    }

    /// New connections carry no more than this in a second and direction.
    pub fn slow_down(&self, bytes_per_second: u64) {
        self.traffic.per_second.store(bytes_per_second, Ordering::SeqCst);
    }

    /// How many bytes have passed.
    pub fn passed(&self) -> u64 {
        self.traffic.passed.load(Ordering::SeqCst)
    }

    /// How often it has cut at a byte.
    pub fn cuts_made(&self) -> u64 {
        self.traffic.cuts.load(Ordering::SeqCst)
    }

    /// Lets nothing pass in either direction, without closing anything: a peer that vanished.
    pub fn freeze(&self) {
        self.frozen.send_modify(|frozen| *frozen = Frozen { times: frozen.times + 1, is_for_all: true });
    }

    /// New connections pass; frozen ones stay frozen.
    pub fn thaw_new(&self) {
        self.frozen.send_modify(|frozen| frozen.is_for_all = false);
    }

    /// Turns new connections away.
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

async fn carry(
    client: TcpStream,
    server: TcpStream,
    mut cut: broadcast::Receiver<()>,
    frozen: watch::Receiver<Frozen>,
    traffic: Arc<Traffic>,
) {
    for socket in [&client, &server] {
        let _ = socket.set_nodelay(true);
        // Dropped with unsent data and no linger, a socket is reset: the cut is abrupt for both sides.
        let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
    }
    let per_second = traffic.per_second.load(Ordering::SeqCst);
    if per_second > 0 {
        for socket in [&client, &server] {
            // Otherwise the kernel takes megabytes on behalf of a link that carries little.
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, SLOW_BUFFER_BYTES);
        }
    }
    let own = Own { passed: AtomicU64::new(0), cut_at: traffic.draw() };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        _ = cut.recv() => {}
        () = copy(client_read, server_write, frozen.clone(), &traffic, &own) => {}
        () = copy(server_read, client_write, frozen, &traffic, &own) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut frozen: watch::Receiver<Frozen>,
    traffic: &Traffic,
    own: &Own,
) {
    let born = frozen.borrow().times;
    let mut due = Instant::now();
    let per_second = traffic.per_second.load(Ordering::SeqCst);
    let mut buffer = vec![0; if per_second > 0 { SLOW_PIECE_BYTES } else { 64 << 10 }];
    loop {
        let count = tokio::select! {
            biased;
            () = until_frozen(&mut frozen, born) => std::future::pending().await,
            count = from.read(&mut buffer) => count,
        };
        match count {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let (count, is_cut) = traffic.admit(count, own);
                if to.write_all(&buffer[..count]).await.is_err() || is_cut {
                    return;
                }
                if per_second > 0 {
                    // What a late wake-up has cost is made up for, but no idle time is saved up.
                    due = due.max(Instant::now() - SLOW_CATCH_UP)
                        + Duration::from_secs_f64(count as f64 / per_second as f64);
                    // sleep: a slow link is made of waiting.
                    tokio::time::sleep_until(due).await;
                }
            }
        }
    }
}

/// Once frozen, a connection never moves again.
async fn until_frozen(frozen: &mut watch::Receiver<Frozen>, born: u64) {
    let _ = frozen.wait_for(|frozen| frozen.is_for_all || frozen.times > born).await;
}
