//! Processes in a sandbox that something else than the sandbox has ended. Their output looks like that of a process to
//! which the sandbox has denied something.

use testkit::{Client, TestServer, Value, binary, json};

use crate::run;

/// What the processes of these tests write before they wait or compute.
const SUSPICIOUS_TEXT: &str = "Permission denied";

/// The params of a start in a sandbox that allows only reading.
fn start_params(process: &str, script: &str) -> Value {
    let mut params = Client::start_params(process, &["sh", "-c", &format!("echo {SUSPICIOUS_TEXT}; {script}")]);
    let entry = json!({"path": {"type": "special", "value": {"kind": "root"}}, "access": "read"});
    params["sandbox"] = json!({"windowsSandboxLevel": "disabled", "permissions": {"type": "managed",
        "network": "restricted", "file_system": {"type": "restricted", "entries": [entry]}}});
    params
}

/// The params of the exit event.
async fn exit(client: &mut Client, process: &str) -> Value {
    loop {
        let event = client.event(process).await;
        if event["method"] == "process/exited" {
            return event["params"].clone();
        }
    }
}

#[tokio::test]
async fn a_process_that_was_ended_is_not_called_denied() {
    let server = TestServer::start().await;
    let mut client = server.client().await;

    client.call("process/start", start_params("own", "exit 1")).await;
    assert_eq!(exit(&mut client, "own").await["sandboxDenied"], true, "the text alone is a reason");

    let mut params = start_params("timeout", "exec sleep 1000");
    params["timeoutMs"] = json!(300);
    client.call("process/start", params).await;
    let exited = exit(&mut client, "timeout").await;
    assert_eq!((&exited["timedOut"], &exited["sandboxDenied"]), (&json!(true), &json!(false)));

    client.call("process/start", start_params("terminated", "exec sleep 1000")).await;
    client.output_until("terminated", SUSPICIOUS_TEXT).await;
    client.call("process/terminate", json!({"processId": "terminated"})).await;
    assert_eq!(exit(&mut client, "terminated").await["sandboxDenied"], false);

    for signal in ["interrupt", "terminate", "kill"] {
        client.call("process/start", start_params(signal, "exec sleep 1000")).await;
        client.output_until(signal, SUSPICIOUS_TEXT).await;
        client.call("process/signal", json!({"processId": signal, "signal": signal})).await;
        assert_eq!(exit(&mut client, signal).await["sandboxDenied"], false, "{signal}");
    }

    let mut params = start_params("limit", "exec perl -e '1 while 1'");
    params["limits"] = json!({"cpuSeconds": 1});
    client.call("process/start", params).await;
    let exited = exit(&mut client, "limit").await;
    assert_eq!((&exited["limitReached"]["ended"], &exited["sandboxDenied"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn a_process_that_fails_after_a_signal_is_still_called_denied() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "trap 'exit 3' USR1; echo ready; while :; do sleep 0.01; done";
    client.call("process/start", start_params("p", script)).await;
    client.output_until("p", "ready").await;
    client.call("process/signal", json!({"processId": "p", "signal": "user1"})).await;
    let exited = exit(&mut client, "p").await;
    assert_eq!((&exited["exitCode"], &exited["sandboxDenied"]), (&json!(3), &json!(true)));
}

#[tokio::test]
async fn run_names_the_timeout_and_no_denial() {
    let binary = binary();
    let program = binary.to_str().unwrap();
    let message = "exec-server: the command was ended because it ran longer than its timeout (--timeout)\n";
    let script = format!("echo {SUSPICIOUS_TEXT}; exec sleep 1000");
    for sandbox in [&[][..], &["--sandbox", "read-only"]] {
        let args = [&[program, "run", "--timeout", "1s"], sandbox, &["--", "sh", "-c", &script]].concat();
        assert_eq!(run(&args).await, (format!("{SUSPICIOUS_TEXT}\n"), message.to_owned(), Some(124)));
    }
}
