//! The flag `--listen` and its environment variable: which addresses the server accepts, and which URLs it prints.

use std::process::Stdio;

use testkit::{Client, Signal, TestServer, binary, eventually_async, json, run_to_end, send_signal};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

#[tokio::test]
async fn by_default_the_server_prints_one_line_with_the_url_of_a_free_loopback_port() {
    let mut command = Command::new(binary());
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut stdout = server.stdout.take().unwrap();
    let mut printed = Vec::new();
    while !printed.ends_with(b"\n") {
        stdout.read_buf(&mut printed).await.unwrap();
    }
    let url = String::from_utf8(printed.clone()).unwrap().trim_end().to_owned();
    assert!(url.starts_with("ws://127.0.0.1:") && !url.ends_with(":0"), "{url}");
    let mut client = Client::connect(&url).await;
    client.handshake(None).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);

    send_signal(server.id().unwrap(), Signal::TERM);
    stdout.read_to_end(&mut printed).await.unwrap();
    assert_eq!(String::from_utf8(printed).unwrap(), format!("{url}\n"), "no other line is printed");
    assert_eq!(server.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn several_addresses_share_the_sessions_of_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let socket = format!("unix://{}/exec.sock", directory.path().display());
    let listen = ["--listen", "ws://127.0.0.1:0", "--listen", &socket, "--listen", "ws://[::1]:0"];
    let server = TestServer::with_args(&listen).await;
    let [v4, unix, v6] = server.urls() else { panic!("{:?}", server.urls()) };
    assert!(v4.starts_with("ws://127.0.0.1:"), "{v4}");
    assert_eq!(*unix, socket);
    assert!(v6.starts_with("ws://[::1]:"), "{v6}");
    let mut on_unix = Client::connect(unix).await;
    on_unix.handshake(None).await;
    assert_eq!(on_unix.run("p", &["echo", "hello"]).await.stdout, b"hello\n");
    // A session that was opened over one TCP address is resumed over the other. Neither address asks for a token, so
    // clients of both have the same principal, which is the owner of the session.
    let mut session: Option<String> = None;
    for (n, url) in [v4, v6, v4].into_iter().enumerate() {
        let mut client = eventually_async("the session is free", async || {
            let mut client = Client::connect(url).await;
            let params = json!({"clientName": "test", "resumeSessionId": session});
            let answer = client.request("initialize", params).await;
            client.session = answer["result"]["sessionId"].as_str()?.to_owned();
            Some(client)
        })
        .await;
        client.notify("initialized", json!({})).await;
        let outcome = client.run(&format!("p{n}"), &["echo", "hello"]).await;
        assert_eq!(outcome.stdout, b"hello\n", "{url}");
        session = Some(client.session.clone());
    }
}

#[tokio::test]
async fn environment_variables_have_the_same_effect_as_flags() {
    let server = TestServer::start_with(&[], |command| {
        command.env("EXEC_SERVER_LISTEN", "ws://[::1]:0,ws://127.0.0.1:0").env("EXEC_SERVER_MAX_SESSIONS", "1")
    })
    .await;
    assert!(server.url().starts_with("ws://[::1]:"), "{}", server.url());
    let _first = server.client().await;
    let mut second = server.connect_without_handshake().await;
    let error = second.call_error("initialize", json!({"clientName": "second"})).await;
    assert_eq!(error["message"], "server has reached its limit of 1 sessions (--max-sessions)");
}

#[tokio::test]
async fn an_invalid_address_is_refused() {
    for (url, expected) in [
        ("ws://localhost:1234", "invalid websocket --listen URL `ws://localhost:1234`; expected `ws://IP:PORT`"),
        ("ws://127.0.0.1", "invalid websocket --listen URL `ws://127.0.0.1`; expected `ws://IP:PORT`"),
        ("wss://localhost:1", "invalid websocket --listen URL `wss://localhost:1`; expected `wss://IP:PORT`"),
        ("unix://relative", "invalid unix --listen URL `unix://relative`; expected `unix:///PATH`"),
        ("http://127.0.0.1:1", "unsupported --listen URL `http://127.0.0.1:1`"),
        ("", "unsupported --listen URL ``"),
    ] {
        let output = run_to_end(&["--listen", url]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{url}: {stderr}");
        assert!(stderr.contains(expected), "{url}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[tokio::test]
async fn an_address_in_use_and_stdio_twice_are_refused() {
    let server = TestServer::start().await;
    let output = run_to_end(&["--listen", server.url()]).await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    let expected = format!("exec-server: cannot listen on {}: Address already in use\n", server.url());
    assert_eq!(stderr, expected);

    let output = run_to_end(&["--listen", "stdio", "--listen", "stdio"]).await;
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "exec-server: stdio can be given once only\n");
}

#[tokio::test]
async fn if_one_address_fails_none_is_served() {
    let other = TestServer::start().await;
    let output = run_to_end(&["--listen", "ws://127.0.0.1:0", "--listen", other.url()]).await;
    assert_eq!(output.status.code(), Some(125));
    assert!(output.stdout.is_empty(), "no address is printed");
}
