//! The real curl, with the environment variables that a child process gets.

use std::process::Stdio;

use proxy::{Socks5Support, child_variables};
use testkit::{HttpPeer, http_ok};
use tokio::process::Command;

use crate::support::{Deny, Setup, TestProxy, patterns};

/// Runs curl and returns its exit code and what it printed.
async fn curl(proxy: &TestProxy, socks5: Socks5Support, arguments: &[&str]) -> (i32, String) {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20"])
        .args(arguments)
        .env_clear()
        .envs(child_variables(proxy.address, socks5))
        .env("PATH", std::env::var_os("PATH").unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code().unwrap(), text)
}

#[tokio::test]
async fn curl_uses_the_proxy_for_a_plain_url_a_tunnel_and_socks5() {
    let peer = HttpPeer::closing(|_| http_ok("from the target")).await;
    let proxy = TestProxy::start(Setup::default()).await;
    proxy.names.set("site.test", &[&["127.0.0.1"]]);
    let url = format!("http://site.test:{}/", peer.port);
    let socks = format!("socks5h://{}", proxy.address);
    for arguments in [[url.as_str()].as_slice(), &["--proxytunnel", &url], &["--proxy", &socks, &url]] {
        let (code, text) = curl(&proxy, Socks5Support::Enabled, arguments).await;
        assert_eq!((code, text.as_str()), (0, "from the target"), "{arguments:?}");
    }
    assert_eq!(proxy.names.asked(), ["site.test"; 3]);
}

#[tokio::test]
async fn curl_shows_the_refusal() {
    let mut setup = Setup::default();
    setup.rules.domains = patterns(&[("site.test", Deny)]);
    let proxy = TestProxy::start(setup).await;
    let (code, text) = curl(&proxy, Socks5Support::Enabled, &["--fail-with-body", "http://site.test/"]).await;
    assert!(code == 22 && text.contains("the network policy refuses access to site.test: denied"), "{code} {text}");
    let (code, text) = curl(&proxy, Socks5Support::Enabled, &["https://site.test/"]).await;
    assert!(code == 56 && text.contains("403"), "{code} {text}");
    // curl uses ALL_PROXY for protocols that have no variable of their own.
    let (code, text) = curl(&proxy, Socks5Support::Enabled, &["telnet://site.test:23"]).await;
    assert!(code == 97 && text.contains("SOCKS5"), "{code} {text}");
}
