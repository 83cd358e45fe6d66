//! Servers of different kinds behind a forwarder, and servers that are away.

use std::os::unix::fs::PermissionsExt as _;

use testkit::service::Leg;
use testkit::{Signal, TestServer, TestService, eventually, open_fds};

use crate::support::{ENVIRONMENT, Forwarder, text_and_code, within};

const ECHO: [&str; 5] = ["run", "-e", ENVIRONMENT, "--", "hostname"];

#[tokio::test]
async fn a_server_on_a_unix_socket_is_a_destination_too() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", folder.path().join("socket").display());
    let (service, server) = (TestService::start().await, TestServer::with_args(&["--listen", &url]).await);
    let forwarder = Forwarder::start(&service, server.url()).await;
    let input = "line\n".repeat(300_000);
    let echoed =
        forwarder.output_with_input(&service, &["run", "-e", ENVIRONMENT, "--", "cat"], input.as_bytes()).await;
    assert!(text_and_code(&echoed) == (input, String::new(), Some(0)), "{:?}", echoed.stderr);
}

#[tokio::test]
async fn the_token_goes_to_the_destination() {
    let folder = tempfile::tempdir().unwrap();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "forwarder: a-token-of-the-destination\n").unwrap();
    std::fs::set_permissions(&tokens, std::fs::Permissions::from_mode(0o600)).unwrap();
    let tokens = tokens.to_str().unwrap();
    let service = TestService::start().await;
    let server = TestServer::with_args(&["--token-file", tokens]).await;
    let mut without = Forwarder::start(&service, server.url()).await;
    let refused = text_and_code(&without.output(&service, &ECHO).await);
    assert_eq!(refused.2, Some(125), "{refused:?}");
    assert!(refused.1.contains("the server behind this environment cannot be reached"), "{refused:?}");
    let line = without.line().await;
    assert!(line.contains("a harness was turned away") && line.contains("401"), "{line}");
    without.terminate();
    assert_eq!(without.exit_code().await, Some(0));
    let with = Forwarder::start_with(&service, server.url(), &["--client-token-file", tokens]).await;
    assert_eq!(text_and_code(&with.output(&service, &ECHO).await).2, Some(0));
}

#[tokio::test]
async fn a_destination_that_is_away_fails_one_stream_and_serves_the_next_when_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", folder.path().join("socket").display());
    let service = TestService::start().await;
    let mut forwarder = Forwarder::start(&service, &url).await;
    let refused = text_and_code(&forwarder.output(&service, &ECHO).await);
    assert_eq!(refused.2, Some(125), "{refused:?}");
    assert!(refused.1.contains("the server behind this environment cannot be reached"), "{refused:?}");
    assert!(!refused.1.contains("socket"), "the harness does not learn the address: {refused:?}");
    let line = forwarder.line().await;
    assert!(line.contains("the destination cannot be used") && line.contains(&url), "{line}");
    let _server = TestServer::with_args(&["--listen", &url]).await;
    assert_eq!(text_and_code(&forwarder.output(&service, &ECHO).await).2, Some(0));
    assert_eq!(service.upgrades(Leg::Executor), 1, "the executor kept its socket");
}

#[tokio::test]
async fn a_server_that_shuts_down_or_is_killed_ends_the_stream_and_the_forwarder_stays() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", folder.path().join("socket").display());
    let service = TestService::start().await;
    let mut server = TestServer::with_args(&["--listen", &url]).await;
    let forwarder = Forwarder::start(&service, &url).await;
    for (name, signal) in [("term", Signal::TERM), ("kill", Signal::KILL)] {
        let marker = folder.path().join(name);
        let script = format!("echo > {}; exec sleep 1000", marker.display());
        let running = forwarder.output_started(&service, &["run", "-e", ENVIRONMENT, "--", "sh", "-c", &script]);
        let ending = async {
            eventually("the command runs", || marker.exists().then_some(())).await;
            server.signal(signal);
            server.wait().await;
            server = TestServer::with_args(&["--listen", &url]).await;
        };
        let (output, ()) = tokio::join!(running, ending);
        let (_, stderr, code) = text_and_code(&output);
        match signal {
            // The last events of the server arrive before its close.
            Signal::TERM => assert_eq!((code, stderr.as_str()), (Some(143), "")),
            _ => assert!(code == Some(125) && stderr.contains("session"), "{code:?} {stderr}"),
        }
    }
    assert_eq!(text_and_code(&forwarder.output(&service, &ECHO).await).2, Some(0));
}

#[tokio::test]
async fn nothing_is_left_of_streams_that_have_ended() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let forwarder = Forwarder::start(&service, server.url()).await;
    forwarder.output(&service, &ECHO).await;
    eventually("the harness has left", || (service.connected(Leg::Harness) == 0).then_some(())).await;
    let before = settled_fds(&forwarder).await;
    for _ in 0..5 {
        assert_eq!(text_and_code(&forwarder.output(&service, &ECHO).await).2, Some(0));
    }
    within("the sockets are closed", async {
        eventually("as many descriptors as before", || (open_fds(forwarder.pid()) <= before).then_some(())).await;
    })
    .await;
}

/// The number of descriptors of the forwarder without a connection to the destination.
async fn settled_fds(forwarder: &Forwarder) -> usize {
    let mut last = 0;
    eventually("the number of descriptors stays", || {
        let now = open_fds(forwarder.pid());
        (std::mem::replace(&mut last, now) == now).then_some(now)
    })
    .await
}
