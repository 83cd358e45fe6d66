//! Ctrl-C in the middle of a copy.

use std::fs;

use testkit::{CuttingProxy, Signal, eventually, send_signal};

use crate::support::{CopyFixture, command_at, finished, noise, told};

#[tokio::test]
async fn an_interrupted_copy_leaves_nothing_behind() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(64_000_000, 1)).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    let proxy = CuttingProxy::start(fixture.server.address()).await;
    for (source, target) in [(fixture.here("a"), fixture.there("d/b")), (fixture.there("a"), fixture.here("d/b"))] {
        let before = proxy.passed();
        let child = command_at(&proxy.url(), &["cp", &source, &target]).spawn().unwrap();
        eventually("the copy is in the middle", || (proxy.passed() > before + 4_000_000).then_some(())).await;
        send_signal(child.id().unwrap(), Signal::INT);
        let (out, complaint, code) = told(&finished(child).await);
        assert_eq!((out.as_str(), complaint.as_str(), code), ("", "", Some(130)));
        eventually("no file is left", || (fs::read_dir(fixture.path("d")).unwrap().count() == 0).then_some(())).await;
    }
}
