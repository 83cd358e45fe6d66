//! Ctrl-C during a copy.

use std::fs;

use testkit::{CuttingProxy, Signal, eventually, send_signal};

use crate::support::{CopyFixture, command_at, noise, text_and_code, wait_for_output};

#[tokio::test]
async fn an_interrupted_copy_leaves_nothing_behind() {
    let fixture = CopyFixture::new().await;
    fs::write(fixture.path("a"), noise(64_000_000, 1)).unwrap();
    fs::create_dir(fixture.path("d")).unwrap();
    let proxy = CuttingProxy::start(fixture.server.address()).await;
    for (source, target) in [(fixture.local("a"), fixture.remote("d/b")), (fixture.remote("a"), fixture.local("d/b"))]
    {
        let before = proxy.bytes_passed();
        let child = command_at(&proxy.url(), &["cp", &source, &target]).spawn().unwrap();
        eventually("the copy has begun", || (proxy.bytes_passed() > before + 4_000_000).then_some(())).await;
        send_signal(child.id().unwrap(), Signal::INT);
        let (out, stderr, code) = text_and_code(&wait_for_output(child).await);
        assert_eq!((out.as_str(), stderr.as_str(), code), ("", "", Some(130)));
        eventually("no file is left", || (fs::read_dir(fixture.path("d")).unwrap().count() == 0).then_some(())).await;
    }
}
