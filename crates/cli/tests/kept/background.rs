//! Where nothing is configured, kept sessions live in a server in the background, which ends by itself.

use testkit::{TestServer, eventually};

use crate::support::{Said, command, make_session, run};

#[tokio::test]
async fn without_a_configuration_the_server_in_the_background_is_meant() {
    let state = tempfile::tempdir().unwrap();
    std::fs::create_dir(state.path().join("exec-server")).unwrap();
    let url = format!("unix://{}", state.path().join("exec-server/server.sock").display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    make_session(server.url(), state.path()).await;
    let said = run(command(state.path()).args(["ps", "--json"])).await;
    assert_eq!(said, Said { code: 0, stdout: "[]\n".into(), stderr: String::new() });
    drop(server);
    let said = eventually("the server is gone", || {
        std::os::unix::net::UnixStream::connect(state.path().join("exec-server/server.sock")).is_err().then_some(())
    });
    said.await;
    let said = run(command(state.path()).args(["ps"])).await;
    assert!(said.code == 1 && said.stderr.contains("there is no session `default` on this machine"), "{said:?}");
}
