//! The command line of `port`: what it prints, what it refuses, and how it ends.

use testkit::{PublishedProtocolServer, Signal, TestServer, send_signal};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Forwarding, echo_server, in_time, port_command};

/// Runs `port` with these arguments to its end. Returns stderr and the exit code.
async fn refused(args: &[&str]) -> (String, Option<i32>) {
    let output = in_time(port_command(args).output()).await.unwrap();
    (String::from_utf8(output.stderr).unwrap(), output.status.code())
}

#[tokio::test]
async fn without_an_environment_the_ports_of_this_machine_are_reached() {
    let echo = echo_server().await;
    let mut child = port_command(&[&format!("0:{echo}")]).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut stderr = tokio::io::BufReader::new(child.stderr.take().unwrap());
    in_time(tokio::io::AsyncBufReadExt::read_line(&mut stderr, &mut line)).await.unwrap();
    let (address, rest) = line.strip_prefix("forwarding ").unwrap().split_once(' ').unwrap();
    assert_eq!(rest, format!("to localhost:{echo} of local\n"));
    let mut visitor = tokio::net::TcpStream::connect(address).await.unwrap();
    visitor.write_u8(9).await.unwrap();
    assert_eq!(in_time(visitor.read_u8()).await.unwrap(), 9);
}

#[tokio::test]
async fn a_signal_ends_the_command_its_ports_and_its_connections() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut forwarding = Forwarding::one(server.url(), echo).await;
        let mut visitor = forwarding.connect().await;
        visitor.write_u8(1).await.unwrap();
        in_time(visitor.read_u8()).await.unwrap();
        send_signal(forwarding.pid(), signal);
        assert_eq!(in_time(forwarding.child.wait()).await.unwrap().code(), Some(code));
        assert!(in_time(visitor.read_u8()).await.is_err());
        assert!(tokio::net::TcpStream::connect(&forwarding.addresses[0]).await.is_err());
    }
}

#[tokio::test]
async fn an_address_that_is_in_use_is_an_error_before_anything_is_forwarded() {
    let server = TestServer::start().await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let (stderr, code) = refused(&["--connect", server.url(), "0:80", &format!("{port}:80")]).await;
    assert_eq!(
        (stderr.as_str(), code),
        (&*format!("exec-server: cannot listen on 127.0.0.1:{port}: Address already in use\n"), Some(1))
    );
}

#[tokio::test]
async fn a_server_that_cannot_forward_ports_is_refused_before_a_port_is_opened() {
    let switched_off = TestServer::with_args(&["--no-port-forward"]).await;
    let folder = tempfile::tempdir().unwrap();
    let published = PublishedProtocolServer::start(TestServer::start().await, folder.path());
    for url in [switched_off.url(), published.url()] {
        let (stderr, code) = refused(&["--connect", url, "0:80"]).await;
        assert!(stderr.starts_with("exec-server: the server cannot forward ports: "), "{stderr}");
        assert_eq!((stderr.lines().count(), code), (1, Some(1)));
    }
}

#[tokio::test]
async fn a_wrong_port_is_refused_with_a_sentence() {
    for (spec, sentence) in [
        ("0", "port 0 (any free port) is only for this machine"),
        ("99999", "`99999` is not a port; a port is a number up to 65535"),
        ("db:80", "`db` is not a port"),
        ("db:80:80", "`db` is not an address of this machine"),
        ("[::1:80", "a bracket is not closed"),
        ("1:2:3:4:5", "expected PORT, PORT:PORT, PORT:HOST:PORT or BIND:PORT:HOST:PORT"),
    ] {
        let (stderr, code) = refused(&[spec]).await;
        assert!(stderr.contains(sentence), "{spec}: {stderr}");
        assert_eq!(code, Some(2), "{spec}");
    }
}
