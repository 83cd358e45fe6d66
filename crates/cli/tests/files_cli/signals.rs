//! Ctrl-C in the middle of a copy.

use std::fs;

use testkit::{CuttingProxy, Signal, eventually, send_signal};

use crate::support::{World, command_at, finished, noise, told};

#[tokio::test]
async fn nothing_is_left_of_a_copy_that_is_interrupted() {
    let world = World::new().await;
    fs::write(world.path("a"), noise(64_000_000, 1)).unwrap();
    fs::create_dir(world.path("d")).unwrap();
    let proxy = CuttingProxy::start(world.server.address()).await;
    for (source, target) in [(world.here("a"), world.there("d/b")), (world.there("a"), world.here("d/b"))] {
        let before = proxy.passed();
        let child = command_at(&proxy.url(), &["cp", &source, &target]).spawn().unwrap();
        eventually("it is in the middle", || (proxy.passed() > before + 4_000_000).then_some(())).await;
        send_signal(child.id().unwrap(), Signal::INT);
        let (out, complaint, code) = told(&finished(child).await);
        assert_eq!((out.as_str(), complaint.as_str(), code), ("", "", Some(130)));
        eventually("nothing is left", || (fs::read_dir(world.path("d")).unwrap().count() == 0).then_some(())).await;
    }
}
