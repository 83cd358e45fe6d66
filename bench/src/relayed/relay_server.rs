//! A registry and a relay, as a program of their own.

use anyhow::Result;
use testkit::TestService;

/// If this is the first argument, this program runs as the relay.
pub(crate) const ARGUMENT: &str = "--relay";

/// Runs the relay on one thread, because waking a second thread for each message would take longer than passing it on.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let service = TestService::start().await;
        println!("{}", service.url());
        std::future::pending().await
    })
}
