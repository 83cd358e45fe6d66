//! Ports of a machine behind a relay.

use testkit::service::Leg;
use testkit::{TestServer, TestService, eventually};

use crate::support::{Forwarding, expect_pattern, in_time, send_pattern, tcp_server};

const ENVIRONMENT: &str = "build-7";

#[tokio::test]
async fn a_stream_through_a_relay_goes_on_after_each_socket_was_lost() {
    const BYTES: usize = 8 << 20;
    let service = TestService::start().await;
    let state = tempfile::tempdir().unwrap();
    let url = service.url();
    let args = ["--listen", "ws://127.0.0.1:0", "--remote", &url, "--environment-id", ENVIRONMENT];
    let _executor = TestServer::start_with(&args, |command| {
        let command = command.env("EXEC_SERVER_API_KEY", TestService::TOKEN);
        command.env("HOME", state.path()).env("XDG_STATE_HOME", state.path())
    })
    .await;
    in_time(service.wait_for_upgrades(Leg::Executor, 1)).await;
    let target = tcp_server(|mut stream| async move {
        let (read, write) = stream.split();
        tokio::join!(send_pattern(write, 1, BYTES), expect_pattern(read, 2, BYTES));
    })
    .await;
    let forwarding = Forwarding::start_with(&["-e", ENVIRONMENT], &[target.to_string()], |command| {
        let command = command.env("EXEC_SERVER_REMOTE", &url).env("EXEC_SERVER_API_KEY", TestService::TOKEN);
        command.env("XDG_STATE_HOME", state.path())
    })
    .await;
    let mut visitor = forwarding.connect().await;
    let (read, write) = visitor.split();
    let cutting = async {
        for leg in [Leg::Harness, Leg::Executor] {
            let sockets = service.upgrades(leg);
            service.cut(leg);
            eventually("the socket is replaced", || (service.upgrades(leg) > sockets).then_some(())).await;
        }
    };
    in_time(async { tokio::join!(send_pattern(write, 2, BYTES), expect_pattern(read, 1, BYTES), cutting) }).await;
    assert_eq!(service.violations(), [""; 0]);
}
