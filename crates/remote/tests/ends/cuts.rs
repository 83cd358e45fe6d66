//! Sockets that are cut after different numbers of bytes while a stream begins.

use std::sync::Arc;

use testkit::service::Leg;
use testkit::{CuttingProxy, TestService};

use crate::support::{TestExecutor, harness, receive, registry, run_together, send, within};

/// The largest number of bytes before a cut. More than the upgrade, both messages of a handshake and one message in
/// each direction have together.
const LONGEST_CUT: u64 = 8_500;

/// The numbers of bytes before each cut, `distance` apart. With the variable `CUT_AT_EVERY_BYTE` set, every number is
/// used, which takes minutes.
fn cuts(distance: u64) -> impl Iterator<Item = u64> {
    let distance = if std::env::var_os("CUT_AT_EVERY_BYTE").is_some() { 1 } else { distance };
    (1..LONGEST_CUT).step_by(distance as usize)
}

/// Divides the cuts into `services` shares, and runs `cut` for all shares at the same time.
async fn cut_everywhere<F>(distance: u64, services: u64, cut: impl Fn(Vec<u64>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let shares = (0..services).map(|share| cuts(distance).skip(share as usize).step_by(services as usize).collect());
    run_together(shares.map(cut)).await;
}

/// A service, with a proxy for the sockets of this leg.
async fn service_behind_proxy(leg: Leg) -> (TestService, CuttingProxy) {
    let service = TestService::start().await;
    let proxy = CuttingProxy::start(service.address()).await;
    service.route_through(leg, proxy.url().strip_prefix("ws://").unwrap());
    (service, proxy)
}

/// Connects, sends a message, and expects the same message back.
async fn connect_and_get_echo(service: &TestService) {
    let mut connection = within("the harness is connected", harness(service).connect()).await.unwrap();
    assert!(send(&mut connection.stream, b"question").await);
    assert_eq!(receive(&mut connection.stream).await.unwrap(), b"question"[..]);
}

#[tokio::test]
async fn a_harness_gets_through_wherever_its_first_socket_is_cut() {
    cut_everywhere(31, 4, |cuts| async move {
        // Each cut may leave an abandoned stream at the executor for a while. The number of streams of an executor is
        // limited, so there is a new one after 50 cuts.
        let mut cuts_made = 0;
        for cuts in cuts.chunks(50) {
            let (service, proxy) = service_behind_proxy(Leg::Harness).await;
            let executor = Arc::new(TestExecutor::start(&service).await);
            executor.echo();
            for bytes in cuts {
                proxy.cut_at(proxy.bytes_passed() + bytes);
                connect_and_get_echo(&service).await;
                proxy.cut_at(0);
            }
            cuts_made += proxy.cuts_made();
            assert_eq!(service.violations(), [""; 0]);
        }
        assert!(cuts_made > 10, "{cuts_made}");
    })
    .await;
}

#[tokio::test]
async fn an_executor_gets_through_wherever_its_first_socket_is_cut() {
    cut_everywhere(97, 8, |cuts| async move {
        for bytes in cuts {
            let (service, proxy) = service_behind_proxy(Leg::Executor).await;
            proxy.cut_at(bytes);
            let executor = Arc::new(TestExecutor::start_with(registry(&service)).await);
            executor.echo();
            connect_and_get_echo(&service).await;
            assert_eq!(service.violations(), [""; 0]);
        }
    })
    .await;
}
