//! `sandboxDenied` and `sandboxDenials`: what the exit event says about refusals.

use testkit::{TestServer, json};

use crate::{Workspace, doctor, policy, run, start_params, until_closed};

#[tokio::test]
async fn a_refused_write_is_a_denial_only_if_the_command_fails() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let denied = run(&mut client, start_params("a", "touch /usr/x", &workspace.policy())).await;
    assert_eq!((&denied.exited["exitCode"], &denied.exited["sandboxDenied"]), (&json!(1), &json!(true)));
    let survived = run(&mut client, start_params("b", "touch /usr/x; true", &workspace.policy())).await;
    assert_eq!(survived.exited["sandboxDenied"], false);
    let other = run(&mut client, start_params("c", "echo no luck; exit 3", &workspace.policy())).await;
    assert_eq!(other.exited["sandboxDenied"], false);
}

#[tokio::test]
async fn a_process_without_a_sandbox_is_never_denied() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut params = start_params("p", "echo Permission denied, says the sandbox; exit 1", &json!(null));
    params["sandbox"] = json!({"permissions": {"type": "disabled"}, "windowsSandboxLevel": "disabled"});
    assert_eq!(client.call("process/start", params).await["sandboxType"], "none");
    assert_eq!(until_closed(&mut client, "p").await.exited["sandboxDenied"], false);
}

#[tokio::test]
async fn refused_system_calls_are_in_the_exit_event_and_in_process_read_after_a_resume() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let script = "python3 -c 'import socket; socket.socket()' 2>/dev/null; exit 5";
    let ended = run(&mut client, start_params("p", script, &workspace.policy())).await;
    assert_eq!(ended.exited["sandboxDenied"], true, "{}", ended.exited);
    let denials = ended.exited["sandboxDenials"].as_array().unwrap();
    assert!(denials.contains(&json!({"operation": "socket", "target": "AF_INET", "count": 1})), "{denials:?}");
    let session = client.session.clone();
    drop(client);
    let mut client = server.resume(&session).await;
    let read =
        client.call("process/read", json!({"processId": "p", "afterSeq": 0, "maxBytes": null, "waitMs": 0})).await;
    assert_eq!((&read["sandboxDenied"], &read["sandboxDenials"]), (&json!(true), &ended.exited["sandboxDenials"]));
}

#[tokio::test]
async fn a_denial_after_input_was_written_is_reported() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut params = start_params("p", "read line; touch /usr/$line", &workspace.policy());
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    client.write("p", "1", "x\n").await;
    let ended = until_closed(&mut client, "p").await;
    assert_eq!((&ended.exited["exitCode"], &ended.exited["sandboxDenied"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn a_refused_write_is_a_denial_in_a_terminal_too() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    for (process, script, denied) in [("a", "touch /usr/x", true), ("b", "echo no luck; exit 1", false)] {
        let mut params = start_params(process, script, &workspace.policy());
        params["tty"] = json!(true);
        let ended = run(&mut client, params).await;
        let exited = (&ended.exited["exitCode"], &ended.exited["sandboxDenied"]);
        assert_eq!(exited, (&json!(1), &json!(denied)), "{}", ended.output);
    }
}

#[tokio::test]
async fn a_write_that_landlock_refuses_is_a_denial() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut read_only = policy(vec![], "restricted");
    read_only["useLegacyLandlock"] = json!(true);
    let params = start_params("p", &format!("touch {}/x", workspace.path().display()), &read_only);
    if doctor().await["landlock"]["ok"] == true {
        let ended = run(&mut client, params).await;
        let exited = (&ended.exited["exitCode"], &ended.exited["sandboxDenied"]);
        assert_eq!(exited, (&json!(1), &json!(true)), "{}", ended.output);
    } else {
        let error = client.call_error("process/start", params).await;
        let expected = "failed to prepare process sandbox: the request asks for Landlock (`useLegacyLandlock`), which \
                        cannot enforce it: ";
        assert_eq!(error["code"], -32602);
        assert!(error["message"].as_str().unwrap().starts_with(expected), "{error}");
    }
    assert_eq!(workspace.names(), Vec::<String>::new());
}
