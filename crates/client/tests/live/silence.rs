//! Silent connections, which count as lost, and slow connections, which do not.

use std::time::{Duration, Instant};

use client::{
    ConnectionState, ExecProcessEvent, ExecServerClient, ExecServerClientConnectOptions, ProcessEvents, UrlConnector,
};
use testkit::{CuttingProxy, TestServer};

use crate::support::{sh, sh_with_stdin};

/// Timeout of each wait. Longer than any wait takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(proxy: &CuttingProxy, silence_timeout: Duration) -> ExecServerClient {
    let options = ExecServerClientConnectOptions { silence_timeout, ..Default::default() };
    ExecServerClient::connect(UrlConnector::new(proxy.url(), Default::default()), options).await.unwrap()
}

/// Waits for the next event, which must be output.
async fn expect_output(events: &mut ProcessEvents) {
    let event = tokio::time::timeout(PATIENCE, events.next()).await.expect("no event comes");
    assert!(matches!(event, Some(ExecProcessEvent::Output(_))), "{event:?}");
}

#[tokio::test]
async fn a_silent_connection_is_replaced_after_the_silence_timeout() {
    const TIMEOUT: Duration = Duration::from_secs(1);
    // The session is attached to the silent connection. The server lets the new connection have the session if the
    // silent connection does not answer within 200 ms.
    let server = TestServer::with_args(&["--takeover-after", "200ms"]).await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect(&proxy, TIMEOUT).await;
    let process = client.start(sh("p", "while echo tick; do sleep 0.02; done")).await.unwrap();
    let mut events = process.events();
    expect_output(&mut events).await;
    let mut state = client.connection_state();
    let silent_since = Instant::now();
    // From now on no byte passes over the open connection. New connections work.
    proxy.freeze();
    proxy.thaw_new();
    let lost =
        tokio::time::timeout(PATIENCE, state.wait_for(|state| matches!(state, ConnectionState::Recovering(_))));
    let lost = lost.await.expect("the silence is not noticed").unwrap().clone();
    let noticed = silent_since.elapsed();
    let text = "exec-server transport disconnected: no sign of life for 1s";
    assert_eq!(lost, ConnectionState::Recovering(text.to_owned()));
    // The timeout counts from the last bytes that the client received, which came shortly before `silent_since`.
    assert!(noticed > TIMEOUT - Duration::from_millis(200), "the connection was given up after {noticed:?}");
    state.wait_for(|state| *state == ConnectionState::Connected).await.unwrap();
    // Events that the client has already received are read first. An event with a higher number came over the new
    // connection.
    let last_received = process.subscribe_wake().borrow().to_owned();
    loop {
        match tokio::time::timeout(PATIENCE, events.next()).await.expect("no event comes") {
            Some(ExecProcessEvent::Output(output)) if output.seq > last_received => break,
            Some(ExecProcessEvent::Output(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn pings_keep_an_idle_connection_open() {
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    let client = connect(&proxy, Duration::from_secs(1)).await;
    let mut state = client.connection_state();
    let before = proxy.bytes_passed();
    // sleep: several times the silence timeout, which would end a connection without pings
    let quiet = tokio::time::timeout(Duration::from_secs(3), state.changed());
    assert!(quiet.await.is_err(), "{:?}", client.connection_state().borrow());
    assert!(proxy.bytes_passed() > before, "no ping was sent");
}

#[tokio::test]
async fn a_slow_connection_is_not_taken_for_silent() {
    // Far more bytes than the buffers of the kernel hold.
    const INPUT_BYTES: usize = 18 << 20;
    const TIMEOUT: Duration = Duration::from_secs(3);
    let server = TestServer::start().await;
    let proxy = CuttingProxy::start(server.address()).await;
    // The write below is one message. It takes longer than the silence timeout, and the server sends nothing before
    // the whole message has arrived.
    proxy.slow_down(6 << 20);
    let client = connect(&proxy, TIMEOUT).await;
    let script = format!("head -c {INPUT_BYTES} | wc -c");
    let process = client.start(sh_with_stdin("p", &script)).await.unwrap();
    let state = client.connection_state();
    let started = Instant::now();
    let written = client.write(process.process_id(), vec![b'x'; INPUT_BYTES], Some("w".into())).await.unwrap();
    assert_eq!(written.status, client::WriteStatus::Accepted);
    assert!(started.elapsed() > TIMEOUT, "the link was not slow");
    assert!(!state.has_changed().unwrap(), "a connection that makes progress was given up: {:?}", state.borrow());
    let output = process.wait_with_output().await.unwrap();
    assert_eq!(output.stdout, format!("{INPUT_BYTES}\n").into_bytes());
}
