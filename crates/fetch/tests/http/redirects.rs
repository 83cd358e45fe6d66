//! Redirects that are followed, and redirects that are returned.

use crate::support::{
    failure, fetcher, get, header, load, method_and_target, ok, redirect, reply, request, with_timeout_ms,
};
use fetch::{FailureKind, FetchRequest, Header, Redirects};
use testkit::HttpPeer;

fn methods_and_targets(server: &HttpPeer) -> Vec<String> {
    server.requests().iter().map(|request| method_and_target(request).to_owned()).collect()
}

#[tokio::test]
async fn ten_redirects_are_followed_over_one_connection_and_the_eleventh_is_an_error() {
    let server =
        HttpPeer::answering(|request| match method_and_target(request).trim_start_matches("GET /").parse() {
            Ok(0) => ok("there"),
            Ok(number) => redirect(302, &format!("/{}", number - 1)),
            Err(_) => ok("lost"),
        })
        .await;
    let fetcher = fetcher(&[]);
    assert_eq!(load(&fetcher, get(server.url("/10"))).await.unwrap(), (200, "there".into()));
    assert_eq!((server.connections_accepted(), server.requests().len()), (1, 11));
    let expected = "http/request failed: too many redirects, more than 10".to_owned();
    assert_eq!(failure(load(&fetcher, get(server.url("/11"))).await), (FailureKind::Redirect, expected));
}

#[tokio::test]
async fn a_loop_of_redirects_is_an_error() {
    let server = HttpPeer::answering(|_| redirect(301, "/round")).await;
    assert_eq!(failure(fetcher(&[]).send(get(server.url("/round"))).await).0, FailureKind::Redirect);
    assert_eq!(server.requests().len(), 11);
}

#[tokio::test]
async fn status_and_method_decide_whether_a_redirect_becomes_a_get_without_a_body() {
    let server = HttpPeer::answering(|request| match method_and_target(request).split_once(" /") {
        Some((_, "end")) => ok(""),
        Some((_, status)) => redirect(status.parse().unwrap(), "end#fragment"),
        None => ok("lost"),
    })
    .await;
    let fetcher = fetcher(&[]);
    for (method, status, expected) in [
        ("POST", 301, "GET /end"),
        ("POST", 302, "GET /end"),
        ("PUT", 303, "GET /end"),
        ("HEAD", 303, "HEAD /end"),
        ("POST", 307, "POST /end"),
        ("PUT", 308, "PUT /end"),
        ("PUT", 302, "PUT /end"),
    ] {
        let body = (method != "HEAD").then(|| "data".into());
        load(&fetcher, FetchRequest { body, ..request(method, server.url(&format!("/{status}"))) }).await.unwrap();
        let last = server.requests().pop().unwrap();
        assert_eq!(method_and_target(&last), expected, "{method} {status}");
        let has_body = expected.starts_with('P');
        assert_eq!((last.ends_with("\r\n\r\ndata"), last.contains("content-length: 4")), (has_body, has_body));
    }
}

#[tokio::test]
async fn a_redirect_to_another_origin_sends_no_credentials() {
    let other = HttpPeer::answering(|_| ok("other")).await;
    let target = other.url("/there");
    let server = HttpPeer::answering(move |request| match method_and_target(request) {
        "GET /same" => redirect(302, "/away"),
        _ => redirect(302, &target),
    })
    .await;
    let names = ["Authorization", "Cookie", "Proxy-Authorization", "WWW-Authenticate", "X-Kept"];
    let headers = names.map(|name| header(name, "secret")).to_vec();
    let request = FetchRequest { headers, ..get(server.url("/same")) };
    assert_eq!(load(&fetcher(&[]), request).await.unwrap().1, "other");
    let counts: Vec<_> = server.requests().iter().map(|request| request.matches("secret").count()).collect();
    assert_eq!(counts, [5, 5]);
    assert_eq!(
        other.requests(),
        [format!("GET /there HTTP/1.1\r\nx-kept: secret\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\n\r\n", other.port)]
    );
}

#[tokio::test]
async fn a_redirect_within_an_origin_sends_a_referer_without_user_and_fragment() {
    let server = HttpPeer::answering(|request| match method_and_target(request) {
        "GET /one?q=1" => redirect(302, "/two#fragment"),
        _ => ok("there"),
    })
    .await;
    let url = format!("http://user:secret@127.0.0.1:{}/one?q=1#part", server.port);
    assert_eq!(load(&fetcher(&[]), get(url)).await.unwrap().1, "there");
    let (port, rest) = (server.port, "accept: */*\r\nhost: 127.0.0.1");
    let referer = format!("referer: http://127.0.0.1:{port}/one?q=1");
    assert_eq!(
        server.requests(),
        [
            format!("GET /one?q=1 HTTP/1.1\r\n{rest}:{port}\r\n\r\n"),
            format!("GET /two HTTP/1.1\r\n{referer}\r\n{rest}:{port}\r\n\r\n"),
        ]
    );
}

#[tokio::test]
async fn a_redirect_to_another_origin_sends_no_header_with_a_value_from_an_environment_variable() {
    let other = HttpPeer::answering(|_| ok("other")).await;
    let target = other.url("/there");
    let server = HttpPeer::answering(move |request| match method_and_target(request) {
        "GET /same" => redirect(302, "/away"),
        _ => redirect(302, &target),
    })
    .await;
    let from_token = |name: &str, value: &str| Header { value_env_var: Some("TOKEN".into()), ..header(name, value) };
    let headers = vec![
        from_token("X-Api-Key", ""),
        header("X-Kept", "plain"),
        from_token("X-Other", "of "),
        // Has the same name as a header with a value from the environment, so it is not sent either.
        header("x-other", "x"),
    ];
    let request = FetchRequest { headers, ..get(server.url("/same")) };
    assert_eq!(load(&fetcher(&[("TOKEN", "secret")]), request).await.unwrap().1, "other");
    let counts: Vec<_> = server.requests().iter().map(|request| request.matches("secret").count()).collect();
    assert_eq!(counts, [2, 2]);
    assert_eq!(
        other.requests(),
        [format!("GET /there HTTP/1.1\r\nx-kept: plain\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\n\r\n", other.port)]
    );
}

#[tokio::test]
async fn a_redirect_to_a_url_that_is_not_http_is_an_error() {
    let server = HttpPeer::answering(|_| redirect(302, "file:///etc/secret")).await;
    let (kind, text) = failure(fetcher(&[]).send(get(server.url("/"))).await);
    let expected =
        "http/request failed: a redirect leads to a URL of the scheme file, and only http and https are followed";
    assert_eq!((kind, text.as_str()), (FailureKind::Redirect, expected));
}

#[tokio::test]
async fn a_redirect_is_returned_if_it_has_no_location_or_must_not_be_followed() {
    let without_location = "HTTP/1.1 302 Found\r\nContent-Length: 4\r\n\r\nstay";
    let server =
        HttpPeer::answering(
            move |request| if request.contains("/nowhere") { reply(without_location) } else { redirect(307, "/x") },
        )
        .await;
    let fetcher = fetcher(&[]);
    assert_eq!(load(&fetcher, get(server.url("/nowhere"))).await.unwrap(), (302, "stay".into()));
    let response = fetcher.send(FetchRequest { redirects: Redirects::Stop, ..get(server.url("/")) }).await.unwrap();
    assert_eq!(response.status, 307);
    assert!(response.headers.contains(&("location".into(), "/x".into())));
    assert_eq!(response.body.collect(4).await.unwrap(), "gone");
    assert_eq!(methods_and_targets(&server), ["GET /nowhere", "GET /"]);
}

#[tokio::test]
async fn a_redirect_whose_body_never_ends_is_followed_at_once() {
    let endless = b"HTTP/1.1 302 Found\r\nLocation: /end\r\nContent-Length: 100\r\n\r\nxxx";
    let server =
        HttpPeer::answering(move |request| if request.contains("/end") { ok("end") } else { reply(endless) }).await;
    assert_eq!(load(&fetcher(&[]), get(server.url("/"))).await.unwrap(), (200, "end".into()));
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn the_deadline_also_ends_the_request_that_follows_a_redirect() {
    let server = HttpPeer::answering(|request| match method_and_target(request) {
        "GET /" => redirect(302, "/stall"),
        _ => reply(""),
    })
    .await;
    assert_eq!(failure(fetcher(&[]).send(with_timeout_ms(1000, get(server.url("/")))).await).0, FailureKind::Timeout);
    assert_eq!(methods_and_targets(&server), ["GET /", "GET /stall"]);
}
