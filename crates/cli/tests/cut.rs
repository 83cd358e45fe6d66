//! Connections that are cut again and again while processes write: no event is lost, and none comes twice.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::{Client, CuttingProxy, ResumingClient, TestServer};

/// The seed of the random numbers. It is fixed, so that a failure can be reproduced. The environment variable `CUT_SEED` sets
/// another seed.
const SEED: u64 = 0x5EED_2026;

/// Pseudo-random numbers (xorshift64*).
struct RandomNumbers(u64);

impl RandomNumbers {
    #[expect(clippy::print_stdout, reason = "shown if the test fails")]
    fn new() -> Self {
        let seed = std::env::var("CUT_SEED").map_or(SEED, |seed| seed.parse().unwrap());
        println!("CUT_SEED={seed}");
        Self(seed)
    }

    /// The next number, which is lower than `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) % limit
    }

    /// Numbers lower than `limit`, in ascending order.
    fn sorted_points(&mut self, count: usize, limit: u64) -> Vec<u64> {
        let mut cut_points: Vec<_> = (0..count).map(|_| self.below(limit)).collect();
        cut_points.sort_unstable();
        cut_points
    }
}

/// Cuts the connection of the client. Returns when the client has noticed that its connection is gone.
async fn cut(proxy: &CuttingProxy, client: &mut ResumingClient) {
    while !client.is_connected() {
        client.step().await;
    }
    proxy.cut();
    while client.is_connected() {
        client.step().await;
    }
}

async fn read_until_all_are_closed(client: &mut ResumingClient) {
    while client.processes().values().any(|received| !received.closed) {
        client.step().await;
    }
}

/// The numbers from 1 to `last`, one on each line.
fn numbers(last: usize) -> Vec<u8> {
    use std::io::Write as _;
    let mut text = Vec::new();
    for number in 1..=last {
        writeln!(text, "{number}").unwrap();
    }
    text
}

/// Like `assert_eq`, but does not print megabytes of output.
fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    let different = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!((different, got.len()), (None, expected.len()), "{what}: first difference and length");
}

fn bytes_received(client: &ResumingClient) -> u64 {
    client.processes().values().map(|received| received.output.len() as u64).sum()
}

/// Prints a batch of lines for each line on stdin, in small writes with pauses, so that cuts fall into the middle of a batch.
const PRINTER: &str = r#"$| = 1; my $n = 0;
    while (<STDIN>) {
        for (1..20) { print join("", map { "line " . ++$n . "\n" } 1..50); select undef, undef, undef, 0.0005 }
    }
    exit 7"#;

#[tokio::test]
async fn two_hundred_cuts_and_two_hundred_thousand_lines() {
    const CUTS: usize = 200;
    const LINES: usize = 200_000;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut random = RandomNumbers::new();
    let mut client = ResumingClient::connect(&proxy.url()).await;
    let mut params = Client::start_params("p", &["perl", "-e", PRINTER]);
    params["pipeStdin"] = true.into();
    client.start("p", params).await;

    for cuts in 0..CUTS {
        // The process writes a batch only after a request for it, and each cut has a batch of its own. So the cuts are spread
        // over the whole output, however slow the client is.
        client.write("p", b"more\n").await;
        let batch_end = LINES / CUTS * (cuts + 1);
        for _ in 0..random.below(12) {
            if client.received("p").output.ends_with(format!("line {batch_end}\n").as_bytes()) {
                break;
            }
            client.step().await;
        }
        cut(&proxy, &mut client).await;
    }
    client.close_stdin("p").await;
    read_until_all_are_closed(&mut client).await;

    let received = client.received("p");
    let expected: String = (1..=LINES).map(|number| format!("line {number}\n")).collect();
    assert_same(&received.output, expected.as_bytes(), "the lines");
    assert_eq!(received.exit_code, Some(7));
    let counts = client.counts();
    assert_eq!(counts.lost, CUTS);
    // The other cuts came before the new connection had resumed the session.
    assert!(counts.resumed > CUTS / 2, "{counts:?}");
}

#[tokio::test]
async fn thirty_cuts_at_full_speed() {
    const CUTS: usize = 30;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let expected = numbers(2_000_000);
    // The process must still run at the last cut. No cut is in the last 2 MiB, because the client can receive much retained
    // output at once after a resume.
    let cut_points = RandomNumbers::new().sorted_points(CUTS, expected.len() as u64 - (2 << 20));
    let mut client = ResumingClient::connect(&proxy.url()).await;
    client.start("p", Client::start_params("p", &["seq", "1", "2000000"])).await;
    for cut_point in cut_points {
        while bytes_received(&client) < cut_point {
            client.step().await;
        }
        assert_eq!(client.received("p").exit_code, None, "the process still writes");
        cut(&proxy, &mut client).await;
    }
    read_until_all_are_closed(&mut client).await;
    assert_eq!(client.counts().lost, CUTS);
    assert_same(&client.received("p").output, &expected, "the numbers");
    assert_eq!(client.received("p").exit_code, Some(0));
}

#[tokio::test]
async fn twenty_cuts_with_twenty_processes() {
    const CUTS: usize = 20;
    const PROCESSES: usize = 20;
    const LAST: usize = 400_000;
    // The server retains little output of each process, so no process can be far ahead of the client, and the cuts come while
    // processes write.
    let server = TestServer::with_args(&["--retain-bytes", "64KiB"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let expected = numbers(LAST);
    let mut random = RandomNumbers::new();
    let mut client = ResumingClient::connect(&proxy.url()).await;
    for number in 0..PROCESSES {
        let process = format!("p{number}");
        let mut params =
            Client::start_params(&process, &["sh", "-c", &format!("read go; seq 1 {LAST}; exit {number}")]);
        params["pipeStdin"] = true.into();
        client.start(&process, params).await;
    }
    for number in 0..PROCESSES {
        client.write(&format!("p{number}"), b"go\n").await;
    }
    for _ in 0..CUTS {
        let cut_point = bytes_received(&client) + random.below(1 << 20);
        while bytes_received(&client) < cut_point {
            client.step().await;
        }
        assert!(client.processes().values().any(|received| !received.closed), "some processes still write");
        cut(&proxy, &mut client).await;
    }
    read_until_all_are_closed(&mut client).await;
    assert_eq!(client.counts().lost, CUTS);
    for number in 0..PROCESSES {
        let received = client.received(&format!("p{number}"));
        assert_same(&received.output, &expected, &format!("process {number}"));
        assert_eq!(received.exit_code, Some(number as i64));
    }
}
