//! Sockets that are lost while much is transferred: nothing of it is lost, repeated or altered.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use testkit::service::Leg;
use testkit::{CuttingProxy, TestService, eventually};
use tokio::task::JoinHandle;

use crate::support::{CommandEnd, RemoteFixture, wait_for_end};

/// The random numbers depend on this seed only. `CUT_SEED` sets another one.
const SEED: u64 = 11;

/// Cuts of each test. If a transfer is over before, the next one follows.
const CUTS: u64 = 500;

/// Size of the file that is copied.
const FILE_BYTES: usize = 256 << 20;

/// Pause between two looks whether a cut was made.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

/// A service whose two legs can be cut after any byte.
struct CutLegs {
    remote: RemoteFixture,
    executor: CuttingProxy,
    harness: CuttingProxy,
    random: u64,
}

impl CutLegs {
    #[expect(clippy::print_stdout, reason = "shown if the test fails")]
    async fn start() -> Self {
        let service = TestService::start().await;
        let (executor, harness) =
            (CuttingProxy::start(service.address()).await, CuttingProxy::start(service.address()).await);
        for (leg, proxy) in [(Leg::Executor, &executor), (Leg::Harness, &harness)] {
            service.route_through(leg, proxy.url().trim_start_matches("ws://"));
        }
        let seed = std::env::var("CUT_SEED").map_or(SEED, |seed| seed.parse().unwrap());
        println!("CUT_SEED={seed}");
        Self { remote: RemoteFixture::with_service(service, &[]).await, executor, harness, random: seed }
    }

    /// A linear congruential generator, of which only the upper bits are used.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Cuts a random leg after a random number of further bytes, again and again, until this test has made `wanted` cuts or
    /// the command ends. Every order of magnitude up to `max_gap` bytes is equally likely, so that cuts hit upgrades,
    /// small frames and the middle of large ones.
    async fn cut_until(&mut self, wanted: u64, max_gap: u64, command: &JoinHandle<CommandEnd>) {
        while self.cuts_made() < wanted && !command.is_finished() {
            let is_executor = self.fraction() < 0.5;
            let gap = (max_gap as f64).powf(self.fraction()) as u64;
            let leg = if is_executor { &self.executor } else { &self.harness };
            let (made_before, mut cut_at) = (leg.cuts_made(), leg.bytes_passed() + gap);
            leg.cut_at(cut_at);
            while leg.cuts_made() == made_before && !command.is_finished() {
                // More bytes than the gap may have passed before the proxy knew where to cut.
                if leg.bytes_passed() >= cut_at {
                    cut_at = leg.bytes_passed() + 1;
                    leg.cut_at(cut_at);
                }
                // sleep: one of many looks at the condition of the loop.
                tokio::time::sleep(PROBE_INTERVAL).await;
            }
        }
        self.executor.cut_at(0);
        self.harness.cut_at(0);
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
    /// Enough for a few seconds of output. At full speed the output would be over after fewer cuts.
    const BYTES_PER_SECOND: u64 = 8 << 20;
    let mut legs = CutLegs::start().await;
    legs.harness.slow_down(BYTES_PER_SECOND);
    let expected: String = (1..=2_000_000).map(|number| format!("{number}\n")).collect();
    let mut commands = 0;
    while legs.cuts_made() < CUTS {
        let command = legs.begin(&["run", "--", "seq", "1", "2000000"]).await;
        legs.cut_until(CUTS, 256 << 10, &command).await;
        let end = command.await.unwrap();
        assert!(end.stdout == expected && end.stderr.is_empty() && end.code == Some(0), "{end:?}");
        commands += 1;
        assert!(commands < 10, "{} cuts in {commands} commands", legs.cuts_made());
    }
    legs.assert_resumed(commands);
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
    let mut commands = 0;
    while legs.cuts_made() < CUTS {
        for (wanted, source, target) in [(CUTS / 2, &local, &at_executor), (CUTS, &at_executor, &back_path)] {
            let command = legs.begin(&["cp", source, target]).await;
            legs.cut_until(wanted, 4 << 20, &command).await;
            assert_eq!(command.await.unwrap(), CommandEnd::printed("", 0));
            commands += 1;
        }
        for copy in [&there, &back] {
            assert_eq!(sha256(copy), expected);
        }
        assert!(commands < 10, "{} cuts in {commands} commands", legs.cuts_made());
    }
    legs.assert_resumed(commands);
}
