//! Requests with params that are invalid for their method, requests with unknown methods, and which error comes first
//! if a handshake is missing too.

use protocol::Method;
use testkit::{TestServer, json};

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

#[tokio::test]
async fn every_method_refuses_params_of_the_wrong_shape() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // The methods include `initialize`. A second `initialize` is refused anyway, but this error is about its params.
    for method in Method::ALL {
        for params in
            [json!([1]), json!("text"), json!(5), json!(true), json!([[]]), json!({"processId": 5, "clientName": 5})]
        {
            let error = client.call_error(method.name(), params.clone()).await;
            assert_eq!(error["code"], INVALID_PARAMS, "{} {params}: {error}", method.name());
            assert!(!error["message"].as_str().unwrap().is_empty());
        }
    }
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn the_error_says_what_is_wrong_with_the_params() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for (method, params, message) in [
        ("process/start", json!({}), "missing field `processId`"),
        (
            "process/start",
            json!({"processId": "p", "argv": "ls", "cwd": "file:///", "env": {}, "tty": false}),
            "invalid type: string \"ls\", expected a sequence",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a", 5], "cwd": "file:///", "env": {}, "tty": false}),
            "invalid type: number, expected a string",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {"A": 1}, "tty": false}),
            "invalid type: number, expected a string",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": [], "tty": false}),
            "invalid type: sequence, expected a map",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {}}),
            "missing field `tty`",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {}, "tty": "no"}),
            "invalid type: string \"no\", expected a boolean",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {}, "tty": true, "size": {"rows": -1, "cols": 80}}),
            "invalid number",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {}, "tty": false, "timeoutMs": -1}),
            "invalid number",
        ),
        (
            "process/start",
            json!({"processId": "p", "argv": ["a"], "cwd": "file:///", "env": {}, "tty": false, "envPolicy": {"inherit": "some"}}),
            "unknown variant `some`, expected one of `core`, `all`, `none`",
        ),
        ("process/read", json!({"processId": "p", "afterSeq": -1}), "invalid number"),
        ("process/read", json!({"processId": "p", "waitMs": 1.5}), "invalid number"),
        ("process/read", json!({"processId": "p", "maxBytes": "all"}), "invalid type: string \"all\", expected u64"),
        ("process/write", json!({"processId": "p"}), "missing field `chunk`"),
        ("process/write", json!({"processId": "p", "chunk": "%%%"}), "Invalid symbol 37, offset 0."),
        ("process/write", json!({"processId": "p", "chunk": "YQ==", "writeId": ""}), "writeId must not be empty"),
        (
            "process/write",
            json!({"processId": "p", "chunk": "YQ==", "writeId": 1}),
            "invalid type: number, expected a string",
        ),
        ("process/signal", json!({"processId": "p"}), "missing field `signal`"),
        (
            "process/signal",
            json!({"processId": "p", "signal": "SIGINT"}),
            "unknown variant `SIGINT`, expected one of `interrupt`, `hangup`, `quit`, `terminate`, `kill`, `user1`, `user2`, `stop`, `continue`",
        ),
        ("process/resize", json!({"processId": "p", "rows": 70000, "cols": 1}), "invalid number"),
        ("process/resize", json!({"processId": "p", "rows": 24}), "missing field `cols`"),
        ("process/signal", json!({"processId": "p", "signal": 5}), "invalid type: number, expected string or map"),
        ("process/signal", json!(null), "invalid type: null, expected struct SignalParams"),
        ("fs/readFile", json!({"path": "/etc/hosts"}), "invalid URI: relative URL without a base"),
        ("fs/readFile", json!(5), "invalid type: number, expected struct FsReadFileParams"),
        ("environment/info", json!([]), "invalid type: sequence, expected unit"),
        ("environment/info", json!({"a": 1}), "invalid type: map, expected unit"),
        ("environment/status", json!({"a": 1}), "invalid type: map, expected unit"),
        ("process/list", json!({"a": 1}), "invalid type: map, expected unit"),
        ("command/exec", json!({"processId": "p", "argv": ["a"]}), "missing field `cwd`"),
        (
            "command/exec",
            json!({"processId": "p", "argv": ["a"], "cwd": "tmp"}),
            "cwd `tmp` must be an absolute path",
        ),
    ] {
        let error = client.call_error(method, params.clone()).await;
        assert_eq!(error, json!({"code": INVALID_PARAMS, "message": message}), "{method} {params}");
    }
}

#[tokio::test]
async fn unknown_methods_are_refused_before_and_after_the_handshake() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    for name in ["fs/readfile", "", "PROCESS/START", "process/start ", "\u{0}", "ünïcödé \"quoted\""] {
        let error = client.call_error(name, json!({"any": "thing"})).await;
        let message = format!("exec-server stub does not implement `{name}` yet");
        assert_eq!(error, json!({"code": METHOD_NOT_FOUND, "message": message}));
    }
    client.handshake(None).await;
    assert_eq!(client.call_error("nothing", json!(null)).await["code"], METHOD_NOT_FOUND);
}

#[tokio::test]
async fn invalid_params_are_reported_before_a_missing_handshake_and_a_missing_handshake_before_other_errors() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    let target = json!({"processId": "p"});
    assert_eq!(client.call_error("process/read", json!({})).await["code"], INVALID_PARAMS);
    for (method, params, family) in [
        ("process/read", target.clone(), "exec"),
        ("process/terminate", target.clone(), "exec"),
        ("process/list", json!({}), "exec"),
        ("command/exec/terminate", target.clone(), "exec"),
        ("environment/info", json!(null), "environment info"),
        ("environment/status", json!({}), "environment status"),
    ] {
        let message = format!("client must call initialize before using {family} methods");
        let expected = json!({"code": INVALID_REQUEST, "message": message});
        assert_eq!(client.call_error(method, params).await, expected);
    }
    client.call("initialize", json!({"clientName": "c"})).await;
    let message = "client must send initialized before using exec methods";
    assert_eq!(client.call_error("process/read", target).await["message"], message);
}

#[tokio::test]
async fn a_failed_initialize_may_be_repeated_and_a_successful_initialize_may_not() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    assert_eq!(client.call_error("initialize", json!({})).await["code"], INVALID_PARAMS);
    let unknown_session = json!({"clientName": "c", "resumeSessionId": "nobody"});
    assert_eq!(client.call_error("initialize", unknown_session).await["message"], "unknown session id nobody");
    client.call("initialize", json!({"clientName": "c"})).await;
    let second = client.call_error("initialize", json!({"clientName": "c"})).await;
    assert_eq!(
        second,
        json!({"code": INVALID_REQUEST, "message": "initialize may only be sent once per connection"})
    );
}
