//! Launchers that somebody stops or kills. The policy stays enforced, and the next command gets another launcher.

use testkit::{Signal, TestServer, base64, eventually, is_alive, json, open_fds, process_state, send_signal};

use crate::{Workspace, descendants_named, kill_and_wait, run, start_params, until_closed};

#[tokio::test]
async fn file_operations_obey_the_policy_after_the_launcher_was_killed() {
    let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    std::fs::write(outside.path().join("file"), "text").unwrap();
    let mut client = server.client().await;
    let sandbox = workspace.policy();
    let write = |uri: &str| json!({"path": format!("{uri}/new"), "dataBase64": base64("new"), "sandbox": sandbox});
    let read = json!({"path": format!("{}/file", outside.uri()), "sandbox": sandbox});
    assert_eq!(client.call("fs/readFile", read.clone()).await["dataBase64"], base64("text"));
    kill_and_wait(descendants_named(&server, "exec-launcher")[0]).await;

    let error = client.call_error("fs/writeFile", write(&outside.uri())).await;
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("sandboxDenied")), "{error}");
    assert_eq!(outside.names(), ["file"]);
    assert_eq!(client.call("fs/readFile", read.clone()).await["dataBase64"], base64("text"));
    client.call("fs/writeFile", write(&workspace.uri())).await;
    assert_eq!(std::fs::read(workspace.path().join("new")).unwrap(), b"new");

    // A command makes another sandbox, which file operations then use too.
    let ended = run(&mut client, start_params("p", "echo on", &sandbox)).await;
    assert_eq!(ended.output, "on\n");
    let error = client.call_error("fs/writeFile", write(&outside.uri())).await;
    assert_eq!(error["data"]["kind"], "sandboxDenied", "{error}");
    assert_eq!(client.call("fs/readFile", read).await["dataBase64"], base64("text"));
}

#[tokio::test]
async fn a_start_whose_launcher_is_killed_fails_and_the_next_works() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut failed = 0;
    // If the launcher is killed before the server has sent the start to it, the server uses another launcher.
    for round in 0..20 {
        let begun = run(&mut client, start_params(&format!("a{round}"), "echo on", &workspace.policy())).await;
        assert_eq!(begun.output, "on\n");
        let running =
            || descendants_named(&server, "exec-launcher").into_iter().filter(|pid| is_alive(*pid)).collect();
        let launcher = eventually("there is one launcher", || {
            let launchers: Vec<u32> = running();
            (launchers.len() == 1).then(|| launchers[0])
        })
        .await;
        send_signal(launcher, Signal::STOP);
        eventually("the launcher is stopped", || (process_state(launcher) == Some('T')).then_some(())).await;
        let before = open_fds(server.pid());
        let process = format!("b{round}");
        let id = client.send("process/start", start_params(&process, "echo late", &workspace.policy())).await;
        // The streams of the process are opened just before the start is sent. Descriptors of the last command may be
        // closed meanwhile and hide that, so this does not wait for ever.
        let mut probes = 0;
        eventually("the server has begun with the start", || {
            probes += 1;
            (open_fds(server.pid()) > before || probes > 100).then_some(())
        })
        .await;
        send_signal(launcher, Signal::KILL);
        let answer = client.answer(id).await;
        if let Some(error) = answer.get("error") {
            let message = error["message"].as_str().unwrap();
            assert_eq!((&error["code"], &error["data"]), (&json!(-32603), &json!({"kind": "other"})), "{error}");
            assert!(message.starts_with("cannot start the process in its sandbox: "), "{message}");
            failed += 1;
        } else {
            assert_eq!(until_closed(&mut client, &process).await.output, "late\n");
        }
        if failed == 3 {
            break;
        }
    }
    assert_eq!(failed, 3);
    let ended = run(&mut client, start_params("next", "echo on", &workspace.policy())).await;
    assert_eq!(ended.output, "on\n");
}
