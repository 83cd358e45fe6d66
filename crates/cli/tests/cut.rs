//! Connections are cut again and again while processes write. The client reconnects and resumes its session each
//! time. In the end it has all output in the right order, and every exit code. The client ignores events that arrive
//! a second time.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::{Client, CuttingProxy, ResumingClient, TestServer};

/// The seed of the random numbers. It is fixed, so that a failure can be reproduced. The environment variable
/// `CUT_SEED` sets another seed.
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

    /// The next `count` numbers, each lower than `limit`, in ascending order.
    fn sorted_below(&mut self, count: usize, limit: u64) -> Vec<u64> {
        let mut numbers: Vec<_> = (0..count).map(|_| self.below(limit)).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Waits until the client is connected, and cuts the connection. Returns when the client has noticed that the
/// connection is gone. A step of the client handles one message, or reconnects if there is no connection.
async fn cut(proxy: &CuttingProxy, client: &mut ResumingClient) {
    while !client.is_connected() {
        client.step().await;
    }
    proxy.cut();
    while client.is_connected() {
        client.step().await;
    }
}

async fn read_until_all_processes_are_closed(client: &mut ResumingClient) {
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

/// A program in Perl. For each line on stdin, it prints a batch of 1,000 lines. A batch is written in small parts
/// with pauses, so that cuts fall into the middle of it.
const PRINTER: &str = r#"$| = 1; my $n = 0;
    while (<STDIN>) {
        for (1..20) { print join("", map { "line " . ++$n . "\n" } 1..50); select undef, undef, undef, 0.0005 }
    }
    exit 7"#;

#[tokio::test]
async fn two_hundred_cuts_lose_and_repeat_none_of_two_hundred_thousand_lines() {
    const CUTS: usize = 200;
    const LINES: usize = 200_000;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let mut random = RandomNumbers::new();
    let mut client = ResumingClient::connect(&proxy.url()).await;
    let mut params = Client::start_params("p", &["perl", "-e", PRINTER]);
    params["pipeStdin"] = true.into();
    client.start("p", params).await;

    for cut_number in 1..=CUTS {
        // The process writes a batch only after a request for it, and there is one cut for each batch. So the cuts
        // are spread over the whole output, however slow the client is.
        client.write("p", b"more\n").await;
        let last_line = format!("line {}\n", LINES / CUTS * cut_number);
        for _ in 0..random.below(12) {
            // After the last line of the batch, a step might wait for a message that never comes.
            if client.received("p").output.ends_with(last_line.as_bytes()) {
                break;
            }
            client.step().await;
        }
        cut(&proxy, &mut client).await;
    }
    client.close_stdin("p").await;
    read_until_all_processes_are_closed(&mut client).await;

    let received = client.received("p");
    let expected: String = (1..=LINES).map(|number| format!("line {number}\n")).collect();
    assert_same(&received.output, expected.as_bytes(), "the lines");
    assert_eq!(received.exit_code, Some(7));
    let counts = client.counts();
    assert_eq!(counts.lost, CUTS);
    // A cut can also hit a connection that has not resumed the session yet.
    assert!(counts.resumed > CUTS / 2, "{counts:?}");
}

#[tokio::test]
async fn thirty_cuts_lose_no_output_of_a_process_that_writes_at_full_speed() {
    const CUTS: usize = 30;
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let expected = numbers(2_000_000);
    // The process must still run at each cut. No cut is in the last 2 MiB of the output, because after a resume the
    // client can receive much retained output at once.
    let cut_points = RandomNumbers::new().sorted_below(CUTS, expected.len() as u64 - (2 << 20));
    let mut client = ResumingClient::connect(&proxy.url()).await;
    client.start("p", Client::start_params("p", &["seq", "1", "2000000"])).await;
    for cut_point in cut_points {
        while bytes_received(&client) < cut_point {
            client.step().await;
        }
        assert_eq!(client.received("p").exit_code, None, "the process has exited before a cut");
        cut(&proxy, &mut client).await;
    }
    read_until_all_processes_are_closed(&mut client).await;
    assert_eq!(client.counts().lost, CUTS);
    assert_same(&client.received("p").output, &expected, "the numbers");
    assert_eq!(client.received("p").exit_code, Some(0));
}

#[tokio::test]
async fn twenty_cuts_lose_no_output_of_twenty_processes() {
    const CUTS: usize = 20;
    const PROCESSES: usize = 20;
    const LAST: usize = 400_000;
    // A process waits while its retained output is full. The server retains little, so no process can be far ahead of
    // the client, and processes still write at each cut.
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
        assert!(client.processes().values().any(|received| !received.closed), "all processes closed before a cut");
        cut(&proxy, &mut client).await;
    }
    read_until_all_processes_are_closed(&mut client).await;
    assert_eq!(client.counts().lost, CUTS);
    for number in 0..PROCESSES {
        let received = client.received(&format!("p{number}"));
        assert_same(&received.output, &expected, &format!("process {number}"));
        assert_eq!(received.exit_code, Some(number as i64));
    }
}
