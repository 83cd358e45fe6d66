//! What ends with a stream: sockets and ids are free again on both sides.

use testkit::{TestServer, eventually, open_fds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Forwarding, echo_server, in_time, tcp_server};

/// Descriptors that server and command may open for themselves when they are first used.
const OWN_DESCRIPTORS: usize = 4;

#[tokio::test]
async fn streams_that_have_ended_in_any_way_leave_nothing_behind() {
    // With this limit, nearly every stream needs the place of an earlier one.
    let server = TestServer::with_args(&["--max-port-streams", "8"]).await;
    let echo = echo_server().await;
    let breaking = tcp_server(|mut stream| async move {
        let _byte_or_end = stream.read_u8().await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let forwarding = Forwarding::start(server.url(), &[echo.to_string(), breaking.to_string()]).await;
    let fds = || [server.pid(), forwarding.pid()].map(open_fds);
    let idle = fds();
    for round in 0..40_u8 {
        // Ended by the visitor in order.
        let mut visitor = forwarding.connect().await;
        visitor.write_u8(round).await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut rest = Vec::new();
        in_time(visitor.read_to_end(&mut rest)).await.unwrap();
        assert_eq!(rest, [round]);
        // Broken by the target, and broken by the visitor.
        let mut visitor = TcpStream::connect(&forwarding.addresses[1]).await.unwrap();
        visitor.write_u8(round).await.unwrap();
        assert!(in_time(visitor.read_u8()).await.is_err());
        let mut visitor = forwarding.connect().await;
        visitor.write_u8(round).await.unwrap();
        assert_eq!(in_time(visitor.read_u8()).await.unwrap(), round);
        visitor.set_zero_linger().unwrap();
        drop(visitor);
        // Both ends of a stream can be gone a moment before its place is free.
        eventually("the sockets are closed", || {
            fds().iter().zip(idle).all(|(now, idle)| *now <= idle + OWN_DESCRIPTORS).then_some(())
        })
        .await;
    }
}
