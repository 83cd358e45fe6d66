//! A registry and a relay in a process of their own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use testkit::TestService;

/// If this is the first argument, this program runs as the relay.
pub(crate) const ARGUMENT: &str = "--relay";

/// A running relay. Dropping the value kills its process.
pub(super) struct RelayProcess {
    child: Child,
    /// The URL of the service.
    pub(super) url: String,
}

impl RelayProcess {
    pub(super) fn start() -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?).arg(ARGUMENT).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().context("the stdout of the relay is missing")?).read_line(&mut url)?;
        Ok(Self { child, url: url.trim().to_owned() })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        let _ignored = self.child.kill();
        let _ignored = self.child.wait();
    }
}

/// Runs the relay on one thread, because waking a second thread for each message would take longer than passing it on.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = TestService::start().await;
        println!("{}", service.url());
        std::future::pending().await
    })
}
