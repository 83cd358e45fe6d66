//! Starts of processes that must fail. The answer has the reason, and the failed start leaves no process, no used
//! process id and no open descriptor behind.

use testkit::{Client, TestServer, Value, eventually, json, open_fds};

use crate::other_client::OtherClient;

const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const INVALID_REQUEST: i64 = -32600;

/// Params of a start that works, with some members replaced or added.
fn start_with(changes: Value) -> Value {
    let mut params = Client::start_params("p", &["true"]);
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

#[tokio::test]
async fn each_impossible_start_reports_its_reason_and_frees_its_id() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "").unwrap();
    let file_uri = format!("file://{}", file.display());
    let missing_uri = format!("file://{}/missing", directory.path().display());
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut client = server.client().await;
    let descriptors = open_fds(server.pid());

    for tty in [false, true] {
        let no_program = if tty { "missing program for PTY spawn" } else { "missing program for pipe spawn" };
        let cases = [
            (json!({"argv": []}), INVALID_PARAMS, "argv must not be empty".to_owned()),
            (json!({"argv": [""]}), INTERNAL, no_program.to_owned()),
            (json!({"argv": ["", "x"]}), INTERNAL, no_program.to_owned()),
            (json!({"argv": ["a\0b"]}), INVALID_PARAMS, "argv contains a NUL byte".to_owned()),
            (json!({"argv": ["true", "\0"]}), INVALID_PARAMS, "argv contains a NUL byte".to_owned()),
            (json!({"arg0": "\0"}), INVALID_PARAMS, "argv contains a NUL byte".to_owned()),
            (json!({"env": {"A": "b\0c"}}), INVALID_PARAMS, "env contains a NUL byte".to_owned()),
            (json!({"env": {"A\0": "b"}}), INVALID_PARAMS, "env contains a NUL byte".to_owned()),
            (json!({"env": {"A=B": "c"}}), INVALID_PARAMS, "environment variable name \"A=B\" is empty or contains `=`".to_owned()),
            (json!({"env": {"": "c"}}), INVALID_PARAMS, "environment variable name \"\" is empty or contains `=`".to_owned()),
            (json!({"argv": ["/no/such/program"]}), INTERNAL, "No such file or directory (os error 2)".to_owned()),
            (json!({"argv": ["no-such-program"]}), INTERNAL, "No such file or directory (os error 2)".to_owned()),
            (json!({"argv": ["/"]}), INTERNAL, "Permission denied (os error 13)".to_owned()),
            (json!({"argv": [file]}), INTERNAL, "Permission denied (os error 13)".to_owned()),
            (json!({"cwd": missing_uri}), INTERNAL, format!("cwd {}/missing: No such file or directory (os error 2)", directory.path().display())),
            (json!({"cwd": file_uri}), INTERNAL, format!("cwd {}: Not a directory (os error 20)", file.display())),
            (json!({"cwd": "file:///C:/x"}), INVALID_PARAMS, "cwd URI `file:///C:/x` is not valid on this exec-server host: 'file:///C:/x' is invalid on 'linux'".to_owned()),
            (json!({"cwd": "file://server/share"}), INVALID_PARAMS, "cwd URI `file://server/share` is not valid on this exec-server host: 'file://server/share' is invalid on 'linux'".to_owned()),
            (json!({"timeoutMs": 0}), INVALID_PARAMS, "timeoutMs must not be 0".to_owned()),
            (json!({"sandbox": {"permissions": {"type": "disabled"}}}), INVALID_PARAMS, "missing field `windowsSandboxLevel`".to_owned()),
            (json!({"sandbox": {"permissions": {"type": "managed", "file_system": {"type": "restricted", "entries": []}, "network": "enabled"}, "windowsSandboxLevel": "disabled"}}), INTERNAL, "No such file or directory (os error 2)".to_owned()),
            (json!({"enforceManagedNetwork": true}), INVALID_PARAMS, "enforceManagedNetwork needs networkProxy, which says what the process may reach; add it, or leave enforceManagedNetwork out".to_owned()),
        ];
        for (mut changes, code, message) in cases {
            changes["tty"] = json!(tty);
            let error = client.call_error("process/start", start_with(changes.clone())).await;
            assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(message)), "{changes}");
        }
        for cwd in
            ["file:///tmp/%00", "/tmp", "tmp", "", "http://x/", "file:///tmp?x", "file:///tmp#x", "file://u@/tmp"]
        {
            let error = client.call_error("process/start", start_with(json!({"cwd": cwd, "tty": tty}))).await;
            assert_eq!(error["code"], INVALID_PARAMS, "{cwd}: {error}");
        }
    }
    other_client.assert_served().await;
    assert_eq!(client.processes().await, json!([]));
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0, "the id of the failed starts is free");
    eventually("there are no more descriptors than before", || (open_fds(server.pid()) <= descriptors).then_some(()))
        .await;
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn a_system_error_has_its_cause_as_data() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let error = client.call_error("process/start", start_with(json!({"argv": ["/no/such/program"]}))).await;
    assert_eq!(error["data"], json!({"errno": 2, "kind": "notFound", "path": "file:///no/such/program"}));
    let error = client.call_error("process/start", start_with(json!({"cwd": "file:///no/where"}))).await;
    assert_eq!(error["data"], json!({"errno": 2, "kind": "notFound", "path": "file:///no/where"}));
    let error = client.call_error("process/start", start_with(json!({"cwd": "file:///etc/passwd"}))).await;
    assert_eq!(error["data"], json!({"errno": 20, "kind": "notADirectory", "path": "file:///etc/passwd"}));
}

#[tokio::test]
async fn a_process_id_is_refused_in_its_session_while_its_process_runs_or_its_output_can_be_read() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    let expected = json!({"code": INVALID_REQUEST, "message": "process p already exists"});
    assert_eq!(client.call_error("process/start", start_with(json!({}))).await, expected);
    let command_exec_params = json!({"processId": "p", "argv": ["true"], "cwd": "/"});
    assert_eq!(client.call_error("command/exec", command_exec_params).await, expected);
    client.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(
        client.call_error("process/start", start_with(json!({}))).await,
        expected,
        "a closed process keeps its id while its output can be read"
    );

    let mut other = server.client().await;
    assert_eq!(other.run("p", &["true"]).await.exit_code, 0, "another session may use the same id");
}

#[tokio::test]
async fn of_two_starts_with_the_same_id_exactly_one_works() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for round in 0..50 {
        let id = format!("p{round}");
        let first = client.send("process/start", Client::start_params(&id, &["true"])).await;
        let second = client.send("process/start", Client::start_params(&id, &["true"])).await;
        let answers = [client.answer(first).await, client.answer(second).await];
        let works = answers.iter().filter(|answer| answer.get("result").is_some()).count();
        assert_eq!(works, 1, "{answers:?}");
        let refused = answers.iter().find_map(|answer| answer.get("error")).unwrap();
        assert_eq!(*refused, json!({"code": INVALID_REQUEST, "message": format!("process {id} already exists")}));
        assert_eq!(client.outcome(&id).await.exit_code, 0);
    }
}
