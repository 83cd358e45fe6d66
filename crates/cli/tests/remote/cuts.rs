//! Sockets that are lost while much is transferred: nothing of it is lost, repeated or altered.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use testkit::service::Leg;
use testkit::{CuttingProxy, TestService, eventually};
use tokio::task::JoinHandle;

use crate::support::{CommandEnd, RemoteFixture, wait_for_end};

/// Size of the file that is copied.
const FILE_BYTES: usize = 256 << 20;

/// Pause between two looks whether a cut was made.
const PROBE_INTERVAL: Duration = Duration::from_millis(10);

/// A service whose two legs can be cut after any byte.
struct CutLegs {
    remote: RemoteFixture,
    executor: CuttingProxy,
    harness: CuttingProxy,
    seed: u64,
}

impl CutLegs {
    /// The seed is printed, so that a failure can be repeated. `EXEC_SERVER_TEST_SEED` gives a certain one.
    async fn start() -> Self {
        let service = TestService::start().await;
        let (executor, harness) =
            (CuttingProxy::start(service.address()).await, CuttingProxy::start(service.address()).await);
        for (leg, proxy) in [(Leg::Executor, &executor), (Leg::Harness, &harness)] {
            service.route_through(leg, proxy.url().trim_start_matches("ws://"));
        }
        let given = std::env::var("EXEC_SERVER_TEST_SEED").ok().map(|seed| seed.parse().unwrap());
        let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let seed = given.unwrap_or_else(clock);
        println!("EXEC_SERVER_TEST_SEED={seed}");
        Self { remote: RemoteFixture::with_service(service, &[]).await, executor, harness, seed }
    }

    /// Cuts so many connections of each leg, one after the other, each after a random number of bytes. Every order of
    /// magnitude up to `max_bytes` is equally likely, so that cuts hit upgrades, small frames and the middle of large
    /// ones. Panics if the command ends before.
    async fn cut_each(&mut self, cuts: u64, max_bytes: u64, command: &mut JoinHandle<CommandEnd>) {
        let wanted = self.cuts_made() + 2 * cuts;
        for leg in [&self.executor, &self.harness] {
            self.seed = self.seed.wrapping_add(1);
            leg.cut_at_random(cuts, max_bytes, self.seed);
            // Only new connections are cut after a number of bytes.
            leg.cut();
        }
        while self.cuts_made() < wanted {
            // sleep: one of many looks at the condition of the loop.
            let ended = tokio::time::timeout(PROBE_INTERVAL, &mut *command).await;
            assert!(ended.is_err(), "{} cuts were left, and the command ended: {ended:?}", wanted - self.cuts_made());
        }
    }

    fn cuts_made(&self) -> u64 {
        self.executor.cuts_made() + self.harness.cuts_made()
    }

    /// Starts a command, and waits until both legs have passed some of its data.
    async fn begin(&self, args: &[&str]) -> JoinHandle<CommandEnd> {
        const BEGUN: u64 = 200_000;
        let passed = [self.executor.bytes_passed(), self.harness.bytes_passed()];
        let command = self.remote.command(args).spawn().unwrap();
        let command = tokio::spawn(async move { CommandEnd::from(wait_for_end(command).await) });
        eventually("the transfer has begun", || {
            let legs = [&self.executor, &self.harness];
            let begun = legs.iter().zip(passed).all(|(leg, before)| leg.bytes_passed() > before + BEGUN);
            begun.then_some(())
        })
        .await;
        command
    }

    /// All streams have gone on over the next socket, and nobody broke the rules.
    fn assert_resumed(&self, commands: usize) {
        assert_eq!(self.remote.handshakes(), commands, "a command made a second handshake");
        assert_eq!(self.remote.service.violations(), [""; 0]);
    }
}

#[tokio::test]
async fn five_hundred_cuts_change_no_byte_of_the_output() {
    let mut legs = CutLegs::start().await;
    let mut command = legs.begin(&["run", "--", "seq", "1", "2000000"]).await;
    legs.cut_each(250, 256 << 10, &mut command).await;
    let end = command.await.unwrap();
    let expected: String = (1..=2_000_000).map(|number| format!("{number}\n")).collect();
    assert!(end.stdout == expected, "{} bytes instead of {}: {}", end.stdout.len(), expected.len(), end.stderr);
    assert_eq!((end.stderr.as_str(), end.code), ("", Some(0)));
    legs.assert_resumed(1);
}

/// Writes a file in which no block is equal to another.
fn write_large_file(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let mut block: Vec<u8> =
        (0..1_u32 << 18).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for number in 0..FILE_BYTES / block.len() {
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block).unwrap();
    }
}

/// The SHA-256 of a file, as `sha256sum` computes it.
fn sha256(path: &Path) -> String {
    let output = std::process::Command::new("sha256sum").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split(' ').next().filter(|sum| sum.len() == 64).unwrap().to_owned()
}

#[tokio::test]
async fn five_hundred_cuts_change_no_byte_of_copied_files() {
    let mut legs = CutLegs::start().await;
    let [original, there, back] = ["original", "there", "back"].map(|name| legs.remote.path(name));
    write_large_file(&original);
    let expected = sha256(&original);
    let at_executor = format!(":{}", there.display());
    let [local, back_path] = [&original, &back].map(|path| path.to_str().unwrap().to_owned());
    for (source, target) in [(&local, &at_executor), (&at_executor, &back_path)] {
        let mut command = legs.begin(&["cp", source, target]).await;
        legs.cut_each(125, 4 << 20, &mut command).await;
        assert_eq!(command.await.unwrap(), CommandEnd::printed("", 0));
    }
    for copy in [&there, &back] {
        assert_eq!(sha256(copy), expected);
    }
    legs.assert_resumed(2);
}
