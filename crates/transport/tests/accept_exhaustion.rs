//! A listener whose process runs out of file descriptors. The limit applies to the whole process, so this test has a
//! binary of its own.

use std::fs::File;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;
use transport::Listener;

#[tokio::test(start_paused = true)]
async fn accept_waits_until_descriptors_are_free_again() {
    let listener = Listener::bind(&"ws://127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = listener.url().replace("ws://", "");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: limit.maximum }).unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let mut held_files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!held_files.is_empty());

    let accepting = tokio::spawn(async move { listener.accept(|_| {}).await.map(|socket| socket.peer) });
    // sleep: the clock is paused and jumps over the pauses of the accept loop, so this is twenty attempts and takes no real time
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!accepting.is_finished(), "accepted without a descriptor");
    held_files.clear();
    let peer = accepting.await.unwrap().unwrap();
    assert_eq!(peer.to_string(), client.local_addr().unwrap().to_string());
}
