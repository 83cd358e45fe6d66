//! Values that a request takes from the environment variables of the server: header values, proxies, certificate
//! authorities. The peer is the HTTP server to which the request goes.

use testkit::{HttpPeer, Value, http_ok, json, read_http_request, tls_acceptor};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::support::{fetch, fetch_error, server_with};

/// Variables whose value may not be sent in a header.
const FORBIDDEN: [&str; 15] = [
    "EXEC_SERVER_API_KEY",
    "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
    "OPENAI_FEDERATION_RULE_ID",
    "OPENAI_IDENTITY_TOKEN_FILE",
    "OPENAI_WORKLOAD_IDENTITY_CONTEXT",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_CONNECTORS_TOKEN",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
];

/// Params with one header. Its value is `prefix`, followed by the value of an environment variable of the server.
fn header(name: &str, prefix: &str, variable: &str) -> Value {
    json!({"headers": [{"name": name, "value": prefix, "valueEnvVar": variable}]})
}

#[tokio::test]
async fn a_header_value_is_a_prefix_and_the_value_of_an_environment_variable() {
    let server = server_with(&[], &[("MY_TOKEN", "abc")]).await;
    let peer = HttpPeer::closing(|_| http_ok("")).await;
    let mut client = server.client().await;
    let info = client.call("environment/info", json!({})).await;
    assert_eq!(info["capabilities"]["httpHeaderEnvVars"], true);
    fetch(&mut client, peer.url("/"), header("Authorization", "Bearer ", "MY_TOKEN")).await;
    assert!(peer.requests()[0].to_ascii_lowercase().contains("\r\nauthorization: bearer abc\r\n"));
}

#[tokio::test]
async fn a_header_with_an_unusable_variable_is_refused_and_no_connection_is_made() {
    let set: Vec<_> = FORBIDDEN.iter().map(|name| (*name, "secret")).chain([("EMPTY", "")]).collect();
    let server = server_with(&[], &set).await;
    let peer = HttpPeer::closing(|_| http_ok("")).await;
    let mut client = server.client().await;
    for name in FORBIDDEN.iter().flat_map(|name| [(*name).to_owned(), name.to_lowercase()]) {
        let (code, message) = fetch_error(&mut client, peer.url("/"), header("X-Key", "", &name)).await;
        let expected = format!("http/request header X-Key cannot use executor environment variable {name}");
        assert_eq!((code, message), (-32602, expected));
    }
    for (name, expected) in [
        ("EMPTY", "http/request header X-Key requires a non-empty executor environment variable EMPTY"),
        ("NO_SUCH", "http/request header X-Key requires executor environment variable NO_SUCH"),
    ] {
        let (code, message) = fetch_error(&mut client, peer.url("/"), header("X-Key", "", name)).await;
        assert_eq!((code, message.as_str()), (-32602, expected));
    }
    assert_eq!(peer.connections_accepted(), 0);
}

#[tokio::test]
async fn requests_use_the_proxy_of_the_environment_and_hosts_are_sent_in_ascii() {
    let (proxy, direct) =
        (HttpPeer::closing(|_| http_ok("proxied")).await, HttpPeer::closing(|_| http_ok("direct")).await);
    let server = server_with(
        &[],
        &[("HTTP_PROXY", &proxy.url("")), ("http_proxy", &proxy.url("")), ("NO_PROXY", "127.0.0.1")],
    )
    .await;
    let mut client = server.client().await;
    let (_, _, body) = fetch(&mut client, "http://bücher.example/path", json!({})).await;
    assert_eq!(body, "proxied");
    let seen = proxy.requests();
    assert!(seen[0].starts_with("GET http://xn--bcher-kva.example/path HTTP/1.1\r\n"), "{seen:?}");
    let (_, _, body) = fetch(&mut client, direct.url("/"), json!({})).await;
    assert_eq!(body, "direct");
    assert_eq!(proxy.connections_accepted(), 1);
}

#[tokio::test]
async fn https_trusts_a_private_certificate_authority_only_if_the_environment_names_it() {
    let (authority, acceptor) = tls_acceptor("localhost", &[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The handshake fails if the exec-server does not trust the certificate.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if read_http_request(&mut stream).await.is_some() {
                let _ignored = stream.write_all(http_ok("secure").as_bytes()).await;
                let _ignored = stream.shutdown().await;
            }
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("authority.pem");
    std::fs::write(&file, authority).unwrap();
    for variable in ["CODEX_CA_CERTIFICATE", "SSL_CERT_FILE"] {
        let server = server_with(&[], &[(variable, file.to_str().unwrap())]).await;
        let (_, _, body) = fetch(&mut server.client().await, &url, json!({})).await;
        assert_eq!(body, "secure", "{variable}");
    }
    let server = server_with(&[], &[]).await;
    let error = server.client().await.call_error("http/request", crate::support::request(&url, json!({}))).await;
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("tls")), "{error}");
    serving.abort();
}
