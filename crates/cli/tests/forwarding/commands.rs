//! Commands in an environment behind a forwarder, on a real server.

use testkit::service::{Leg, Operation, ReferenceHarness};
use testkit::{TestServer, TestService, Value, eventually, json, unbase64};

use crate::support::{ENVIRONMENT, Forwarder, text_and_code, within};

#[tokio::test]
async fn commands_run_on_the_other_server_with_input_output_and_exit_codes() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let forwarder = Forwarder::start(&service, server.url()).await;
    for (script, code) in [("exit 0", 0), ("echo out; echo err >&2; exit 7", 7)] {
        let output = forwarder.output(&service, &["run", "-e", ENVIRONMENT, "--", "sh", "-c", script]).await;
        let (stdout, stderr, exit) = text_and_code(&output);
        assert_eq!(exit, Some(code), "{stdout} {stderr}");
        assert_eq!((stdout.as_str(), stderr.as_str()), if code == 7 { ("out\n", "err\n") } else { ("", "") });
    }
    let input: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    let echoed = forwarder.output_with_input(&service, &["run", "-e", ENVIRONMENT, "--", "cat"], &input).await;
    assert!(echoed.stdout == input, "{} bytes, {}", echoed.stdout.len(), String::from_utf8_lossy(&echoed.stderr));
    let parent = forwarder.output(&service, &["run", "-e", ENVIRONMENT, "--", "sh", "-c", "echo $PPID"]).await;
    assert_eq!(text_and_code(&parent).0.trim(), server.pid().to_string(), "the forwarder starts no process");
    assert_eq!(service.violations(), [""; 0]);
}

#[tokio::test]
async fn a_kept_session_stays_in_the_server_when_the_forwarder_is_replaced() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let mut forwarder = Forwarder::start(&service, server.url()).await;
    let args = ["run", "-d", "-e", ENVIRONMENT, "--id", "kept", "--", "sh", "-c", "echo begun; exec sleep 1000"];
    assert_eq!(text_and_code(&forwarder.output(&service, &args).await).2, Some(0));
    forwarder.terminate();
    assert_eq!(forwarder.exit_code().await, Some(0));
    forwarder.replace(&service, server.url()).await;
    let logs = forwarder.output(&service, &["logs", "-e", ENVIRONMENT, "kept"]).await;
    assert_eq!(text_and_code(&logs).0, "begun\n", "{logs:?}");
    let kill = forwarder.output(&service, &["kill", "-e", ENVIRONMENT, "kept"]).await;
    assert_eq!(text_and_code(&kill).2, Some(0), "{kill:?}");
}

#[tokio::test]
async fn a_command_goes_on_when_the_forwarder_loses_its_socket_to_the_relay() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let forwarder = Forwarder::start(&service, server.url()).await;
    let folder = tempfile::tempdir().unwrap();
    let [begun, go] = ["begun", "go"].map(|name| folder.path().join(name));
    let (begun_file, go_file) = (begun.display(), go.display());
    let script = format!("echo > {begun_file}; while ! test -e {go_file}; do sleep 0.05; done; seq 1 200000");
    let running = forwarder.output_started(&service, &["run", "-e", ENVIRONMENT, "--", "sh", "-c", &script]);
    let cutting = async {
        eventually("the command runs", || begun.exists().then_some(())).await;
        for leg in [Leg::Executor, Leg::Harness] {
            let sockets = service.upgrades(leg);
            service.cut(leg);
            service.wait_for_upgrades(leg, sockets + 1).await;
        }
        std::fs::write(&go, "").unwrap();
    };
    let (output, ()) = tokio::join!(running, cutting);
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(text_and_code(&output) == (expected, String::new(), Some(0)), "{:?}", output.stderr);
    assert_eq!(service.count(Operation::Validate), 1, "there was one handshake");
}

/// The published harness writes files of this size in one message, and published servers refuse frames over 16 MiB.
#[tokio::test]
async fn a_harness_of_the_published_protocol_writes_13_mib_in_one_message() {
    let (service, server) = (TestService::start().await, TestServer::start().await);
    let _forwarder = Forwarder::start(&service, server.url()).await;
    let url = service.url();
    let connecting = ReferenceHarness::connect(&url, TestService::TOKEN, ENVIRONMENT);
    let mut harness = within("the harness is connected", connecting).await.unwrap();
    let mut call = async |id: u64, method: &str, params: Value| {
        let request = json!({"id": id, "method": method, "params": params}).to_string();
        within("the request is sent", harness.send(request.as_bytes())).await.unwrap();
        if method == "initialize" {
            harness.send(br#"{"method":"initialized","params":{}}"#).await.unwrap();
        }
        let answer: Value = serde_json::from_slice(&within("the answer", harness.receive()).await.unwrap()).unwrap();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    };
    call(1, "initialize", json!({"clientName": "published"})).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let bytes: Vec<u8> = (0..13 << 20).map(|number: u32| (number % 253) as u8).collect();
    let uri = format!("file://{}", file.display());
    let written = call(2, "fs/writeFile", json!({"path": uri, "dataBase64": testkit::base64(&bytes)})).await;
    assert!(written.get("result").is_some(), "{written}");
    assert!(std::fs::read(&file).unwrap() == bytes);
    let read = call(3, "fs/readFile", json!({"path": uri})).await;
    assert!(unbase64(&read["result"]["dataBase64"]) == bytes);
    assert_eq!(service.violations(), [""; 0]);
}
