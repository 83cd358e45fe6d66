//! Running out of file descriptors. Alone in its binary, because the limit is the process's.

use std::fs::File;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;
use transport::Listener;

#[tokio::test(start_paused = true)]
async fn accept_waits_until_there_are_descriptors_again() {
    let listener = Listener::bind(&"ws://127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let address = listener.url().replace("ws://", "");
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: limit.maximum }).unwrap();
    let client = TcpStream::connect(address).await.unwrap();
    let mut hoard: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!hoard.is_empty());

    let accepting = tokio::spawn(async move { listener.accept(|_| {}).await.map(|socket| socket.peer) });
    // sleep: the clock is paused and jumps from pause to pause of the accept loop: this is twenty tries, not a second
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!accepting.is_finished(), "accepted without a descriptor");
    hoard.clear();
    let peer = accepting.await.unwrap().unwrap();
    assert_eq!(peer.to_string(), client.local_addr().unwrap().to_string());
}
