//! A complete server behind a relay, and a client that finds a direct path to the listener of the server. The direct
//! path goes through a proxy, so that a test can cut it.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

use std::sync::Arc;
use std::time::Duration;

use exec_server::{
    ConnectionPath, DirectPolicy, ExecParams, ExecServerClient, ExecServerClientConnectOptions, Harness,
    HarnessSettings, HostProcess, Listen, Registry, RelayConnector, RelayIdentity, Server, ServerConfig, TlsRoots,
};
use remote::{DirectListeners, ExecutorSettings, ServiceAccess};
use testkit::service::{Leg, Operation};
use testkit::{CuttingProxy, TestService, eventually_async, http_get};
use transport::MessageLimits;

const ENVIRONMENT: &str = "build-7";

/// A server that also is an executor, and one client of it. The server offers the address of the proxy for the direct
/// path.
struct DirectFixture {
    service: TestService,
    proxy: CuttingProxy,
    address: String,
    server: Server,
    client: ExecServerClient,
}

impl DirectFixture {
    async fn start() -> Self {
        let service = TestService::start().await;
        let server = Server::new(ServerConfig::default(), HostProcess::shared()).unwrap();
        let listen = Listen {
            urls: vec!["ws://127.0.0.1:0".parse().unwrap()],
            tls: None,
            tokens: None,
            insecure_no_auth: false,
            allowed_hosts: Vec::new(),
        };
        let running = server.listen(listen).await.unwrap();
        let address = running.addresses[0].strip_prefix("ws://").unwrap().to_owned();
        let proxy = CuttingProxy::start(&address).await;
        let offered = proxy.url().strip_prefix("ws://").unwrap().parse().unwrap();
        let executor = ExecutorSettings {
            registry: registry(&service),
            identity: Arc::new(RelayIdentity::generate().unwrap()),
            name: None,
            tls_roots: TlsRoots::default(),
            limits: MessageLimits::default(),
            direct: DirectListeners { policy: DirectPolicy::Private, addresses: vec![offered] },
        };
        server.serve_harnesses(executor).await.unwrap();
        service.wait_for_upgrades(Leg::Executor, 1).await;
        let harness = Harness::new(HarnessSettings {
            registry: registry(&service),
            identity: Arc::new(RelayIdentity::generate().unwrap()),
            pinned_fingerprint: None,
            tls_roots: TlsRoots::default(),
            limits: MessageLimits::default(),
            direct: DirectPolicy::Private,
        });
        let options = ExecServerClientConnectOptions::default();
        let client = ExecServerClient::connect(RelayConnector::new(harness), options).await.unwrap();
        Self { service, proxy, address, server, client }
    }

    async fn wait_until(&self, wanted: ConnectionPath) {
        eventually_async("the connection takes this path", async || {
            (self.client.connection_path(Duration::from_secs(30)).await == Some(wanted)).then_some(())
        })
        .await;
    }

    fn direct(&self) -> ConnectionPath {
        ConnectionPath::Direct(self.proxy.url().strip_prefix("ws://").unwrap().parse().unwrap())
    }

    /// The number of connections with this transport, according to the metrics.
    async fn active(&self, transport: &str) -> u64 {
        let metrics = http_get(&self.address, "/metrics", &[]).await.body;
        let wanted = format!("connections_active{{transport=\"{transport}\"}} ");
        let line = metrics.lines().find_map(|line| line.split_once(&wanted).map(|(_, count)| count.parse().unwrap()));
        line.unwrap_or_default()
    }
}

fn registry(service: &TestService) -> Registry {
    let token = credentials::bearer(TestService::TOKEN.to_owned(), None).unwrap();
    let access = ServiceAccess::new(Vec::new(), None).unwrap();
    Registry::new(&service.url(), ENVIRONMENT, token, access.fetcher).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_complete_while_the_direct_path_is_cut_and_found_again() {
    const LINES: usize = 2_000_000;
    let fixture = DirectFixture::start().await;
    fixture.wait_until(fixture.direct()).await;
    eventually_async("the metrics name the path", async || {
        (fixture.active("direct").await == 1 && fixture.active("relay").await == 0).then_some(())
    })
    .await;

    let argv = ["seq".to_owned(), "1".to_owned(), LINES.to_string()];
    for cut_after in [1_000_000, 4_000_000] {
        fixture.wait_until(fixture.direct()).await;
        fixture.proxy.cut_at(fixture.proxy.bytes_passed() + cut_after);
        let params = ExecParams::new(format!("seq-{cut_after}"), argv.iter(), "file:///".parse().unwrap());
        let process = fixture.client.start(params).await.unwrap();
        let output = process.wait_with_output().await.unwrap().stdout;
        let expected: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
        assert!(output == expected.as_bytes(), "{} bytes of {}", output.len(), expected.len());
    }
    assert_eq!(fixture.proxy.cuts_made(), 2);
    fixture.wait_until(fixture.direct()).await;
    assert_eq!(fixture.service.count(Operation::Validate), 1, "no stream was lost");
    assert_eq!(fixture.service.violations(), [""; 0]);
    fixture.client.clone().close().await;
    eventually_async("no connection is counted", async || {
        (fixture.active("direct").await == 0 && fixture.active("relay").await == 0).then_some(())
    })
    .await;
    fixture.server.shut_down().await;
}
