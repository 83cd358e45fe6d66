//! Neither this crate nor the libraries that it uses log secrets, at any level.

use std::io;
use std::sync::Arc;

use crate::http2_peer::{Http2Call, Http2Peer};
use crate::support::{fetcher, header, load, ok, redirect, request};
use crate::tls::{SecureServer, fetcher_that_trusts};
use fetch::{FetchRequest, Header};
use parking_lot::Mutex;
use testkit::{HttpPeer, PeerReply};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that was logged, as text. Clones share it.
#[derive(Clone, Default)]
struct LogText(Arc<Mutex<Vec<u8>>>);

impl LogText {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for LogText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogText {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Some crates write to `log`, and not to `tracing`.
impl log::Log for LogText {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().extend_from_slice(format!("{} {}\n", record.target(), record.args()).as_bytes());
    }

    fn flush(&self) {}
}

/// A POST request with secrets in its headers and its body. All secrets of this test contain `hush`.
fn secret_request(url: String) -> FetchRequest {
    let from_environment =
        Header { name: "X-Env".into(), value: "hushvalue".into(), value_env_var: Some("TOKEN".into()) };
    let headers = vec![header("Authorization", "hushvalue"), from_environment];
    FetchRequest { headers, body: Some("hushbody".into()), ..request("POST", url) }
}

#[tokio::test]
async fn neither_urls_nor_headers_nor_bodies_are_logged() {
    let (from_tracing, from_log) = (LogText::default(), LogText::default());
    log::set_boxed_logger(Box::new(from_log.clone())).unwrap();
    log::set_max_level(log::LevelFilter::Trace);
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
    let subscriber = subscriber.with_writer(from_tracing.clone());
    let _guard = tracing::subscriber::set_default(subscriber.finish());

    let answer = |request: &str| match () {
        () if request.contains("/hushround") => redirect(302, "/hushpath"),
        () if request.contains("/hushbroken") => PeerReply::Close(b"hushanswer".to_vec()),
        () => ok("hushanswer"),
    };
    let (plain, secure) = (HttpPeer::answering(answer).await, SecureServer::start("localhost", answer).await);
    let http2 = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        match call.path() {
            "/hushround" => {
                let response = http::Response::builder().status(302).header("location", "/hushpath").body(());
                call.send(response.unwrap(), "hushanswer".into()).await;
            }
            "/hushbroken" => call.reset(h2::Reason::PROTOCOL_ERROR),
            _ => call.answer("hushanswer").await,
        }
    })
    .await;
    let variables = [("TOKEN", "hushtoken")];
    let fetchers = [
        (fetcher(&variables), format!("http://hushuser:hushpass@localhost:{}", plain.port)),
        (fetcher_that_trusts(&secure, &variables), format!("https://localhost:{}", secure.port)),
        (http2.fetcher(&variables), format!("https://localhost:{}", http2.port)),
    ];
    for (fetcher, origin) in &fetchers {
        for path in ["/hushpath?hushquery", "/hushround"] {
            assert_eq!(load(fetcher, secret_request(format!("{origin}{path}"))).await.unwrap().1, "hushanswer");
        }
        // A caller can log the error, so it must not contain a secret either.
        let error = load(fetcher, secret_request(format!("{origin}/hushbroken"))).await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("hush"), "{error:?}");
    }

    assert_eq!(http2.connections(), 1);
    let (traced, logged) = (from_tracing.text(), from_log.text());
    // Both logs have lines from the libraries, so the search for secrets below means something.
    assert!(traced.contains(" h2::"), "{traced}");
    assert!(traced.contains("method=POST status=200 duration=") && traced.contains("kind=\"protocol\""), "{traced}");
    assert!(logged.contains("rustls"), "{logged}");
    // The second secret is `hushuser:hushpass` in base64.
    for secret in ["hush", "aHVzaHVzZXI6aHVzaHBhc3M"] {
        assert!(!traced.contains(secret) && !logged.contains(secret), "{traced}{logged}");
    }
    let fetch_lines: Vec<_> = traced.lines().filter(|line| line.contains(" fetch::")).collect();
    assert_eq!(fetch_lines.len(), 9, "one line for each of three requests of three fetchers: {traced}");
    assert!(fetch_lines.iter().all(|line| !line.contains("localhost")), "{fetch_lines:?}");
}
