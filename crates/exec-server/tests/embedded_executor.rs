//! Programs that embed an executor, with the present and the older names of the API, and a program that waits for an
//! environment before its executor exists.
#![expect(deprecated, reason = "the older names are what is tested")]
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::sync::Arc;
use std::time::Duration;

use exec_server::{
    ConnectOptions, DirectPolicy, ExecParams, ExecServerClient, ExecServerClientConnectOptions,
    ExecServerRuntimePaths, ForwardDestination, ProvisioningReport, RelayConnector, RelayIdentity, RemoteCredential,
    RemoteCredentialSource, RemoteEnvironmentConfig, RemoteExecutorConfig, RemoteLocation, SharedEnvironmentStatus,
    SharedEnvironments, WhenRecovering, bearer_credential, forward_remote_environment, run_remote_environment,
    run_remote_executor,
};
use testkit::service::{Leg, Operation};
use testkit::{Signal, TestServer, TestService, eventually_async, send_signal};

const ENVIRONMENT: &str = "env-1";

fn connector(service: &TestService) -> RelayConnector {
    let location = RemoteLocation {
        service: service.url(),
        environment_id: ENVIRONMENT.to_owned(),
        pinned_key: None,
        ca_file: None,
        credential: RemoteCredential::Token { token: TestService::TOKEN.to_owned(), account: None },
    };
    let identity = Arc::new(RelayIdentity::generate().unwrap());
    RelayConnector::to_environment(&location, identity, Vec::new(), DirectPolicy::Off).unwrap()
}

fn config(service: &TestService) -> RemoteEnvironmentConfig {
    let credential = bearer_credential(TestService::TOKEN.to_owned(), None).unwrap();
    RemoteEnvironmentConfig {
        credential: RemoteCredentialSource::Given(credential),
        ..RemoteEnvironmentConfig::new(service.url(), ENVIRONMENT)
    }
}

async fn prints_hello(client: &ExecServerClient) {
    let process = client.start(ExecParams::new("p", ["echo", "hello"], "file:///".parse().unwrap())).await.unwrap();
    assert_eq!(process.wait_with_output().await.unwrap().stdout, b"hello\n");
}

/// One test, because the signals that end the executors go to the whole process.
#[tokio::test]
async fn executors_in_this_program_serve_a_deferred_environment_until_sigterm() {
    let service = TestService::start().await;
    let environments = SharedEnvironments::default();
    // A session ends with its executor, so the client need not wait until it can resume the session.
    let options = ExecServerClientConnectOptions {
        recovery_budget: Duration::from_millis(500),
        when_recovering: WhenRecovering::FailFast,
        ..ExecServerClientConnectOptions::default()
    };
    let environment = environments.add_deferred("later", connector(&service), options).unwrap();
    let waiting = tokio::spawn({
        let environment = Arc::clone(&environment);
        async move { environment.client().await }
    });

    let serving = tokio::spawn(run_remote_environment(config(&service), ExecServerRuntimePaths::unguarded()));
    service.wait_for_upgrades(Leg::Executor, 1).await;
    assert!(!waiting.is_finished());
    assert_eq!(
        (service.count(Operation::Connect), environment.status().await),
        (0, SharedEnvironmentStatus::Pending)
    );
    environments.report("later", ProvisioningReport::Ready(Vec::new())).unwrap();
    prints_hello(&waiting.await.unwrap().unwrap()).await;
    assert_eq!(environment.status().await, SharedEnvironmentStatus::Ready);
    send_signal(std::process::id(), Signal::TERM);
    serving.await.unwrap().unwrap();

    let older: RemoteExecutorConfig = config(&service);
    let serving = tokio::spawn(run_remote_executor(older, ExecServerRuntimePaths::unguarded()));
    service.wait_for_upgrades(Leg::Executor, 2).await;
    uses_environment_again(&environment).await;
    send_signal(std::process::id(), Signal::TERM);
    serving.await.unwrap().unwrap();

    let server = TestServer::start().await;
    let destination = ForwardDestination { url: server.url().to_owned(), options: ConnectOptions::default() };
    let forwarding = tokio::spawn(forward_remote_environment(config(&service), destination));
    service.wait_for_upgrades(Leg::Executor, 3).await;
    uses_environment_again(&environment).await;
    send_signal(std::process::id(), Signal::TERM);
    forwarding.await.unwrap().unwrap();
    environments.close().await;
    assert_eq!(service.violations(), [""; 0]);
}

/// Waits until the same environment has a new client, after the session of the old one has ended with its executor, and
/// runs a process with the new client.
async fn uses_environment_again(environment: &exec_server::SharedEnvironment) {
    let client = eventually_async("the environment has a client again", async || {
        let client = environment.client().await.ok()?;
        client.environment_status().await.ok().map(|_| client)
    });
    prints_hello(&client.await).await;
}
