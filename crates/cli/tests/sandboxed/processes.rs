//! Features of `process/start` that must also work in a sandbox.

use testkit::{TestServer, eventually, eventually_async, json};

use crate::policies::path_entry;
use crate::{Workspace, descendants_named, run, start_params};

#[tokio::test]
async fn a_command_writes_where_its_policy_allows_and_nowhere_else() {
    let (server, workspace, outside) = (TestServer::start().await, Workspace::new(), Workspace::new());
    let mut client = server.client().await;
    let script = format!(
        "echo in > {}/file; echo out > {}/file; echo $?",
        workspace.path().display(),
        outside.path().display()
    );
    let ended = run(&mut client, start_params("p", &script, &workspace.policy())).await;
    assert!(ended.output.contains("Read-only file system") && ended.output.ends_with("2\n"), "{}", ended.output);
    assert_eq!(std::fs::read_to_string(workspace.path().join("file")).unwrap(), "in\n");
    assert!(outside.names().is_empty());
}

#[tokio::test]
async fn a_command_has_its_own_processes_and_no_privileges() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let script = "grep -E '^(Cap(Prm|Eff|Bnd)|NoNewPrivs|Seccomp):' /proc/self/status; ls /proc | grep -c '^[0-9]'; kill -9 1; ls -l /proc/self/fd | wc -l";
    let ended = run(&mut client, start_params("p", script, &workspace.policy())).await;
    let none = "0000000000000000";
    let expected = format!("CapPrm:\t{none}\nCapEff:\t{none}\nCapBnd:\t{none}\nNoNewPrivs:\t1\nSeccomp:\t2\n");
    assert!(ended.output.starts_with(&expected), "{}", ended.output);
    let rest: Vec<_> = ended.output[expected.len()..].lines().collect();
    // The first process, the shell, `ls` and `grep`. And the standard streams, the directory that `ls` lists, and a line with the total.
    assert_eq!(rest, ["4", "5"]);
}

#[tokio::test]
async fn a_command_handles_an_interrupt_on_pipes_and_in_a_terminal() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    for (process, tty) in [("pipes", false), ("terminal", true)] {
        let script = "trap 'echo got int; exit 7' INT; echo ready; read line; echo not interrupted";
        let mut params = start_params(process, script, &workspace.policy());
        params["tty"] = json!(tty);
        params["pipeStdin"] = json!(true);
        client.call("process/start", params).await;
        client.output_until(process, "ready").await;
        client.call("process/signal", json!({"processId": process, "signal": "interrupt"})).await;
        let ended = crate::until_closed(&mut client, process).await;
        let lines: Vec<_> = ended.output.lines().filter(|line| line.contains("int")).collect();
        assert_eq!((lines, &ended.exited["exitCode"]), (vec!["got int"], &json!(7)), "{}", ended.output);
    }
}

#[tokio::test]
async fn a_command_in_a_terminal_has_it_as_dev_tty() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut params = start_params("p", "echo through > /dev/tty", &workspace.policy());
    params["tty"] = json!(true);
    let ended = run(&mut client, params).await;
    assert_eq!((ended.output.as_str(), &ended.exited["exitCode"]), ("through\r\n", &json!(0)));
}

#[tokio::test]
async fn a_command_gets_its_argument_zero_and_its_stdin() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    // Without further arguments `$0` of a shell is its own argument zero.
    let mut params = start_params("arg0", "echo $0; cat", &workspace.policy());
    params["arg0"] = json!("chosen");
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    client.write("arg0", "1", "input").await;
    client.close_stdin("arg0").await;
    let ended = crate::until_closed(&mut client, "arg0").await;
    assert_eq!(ended.output, "chosen\ninput");
}

#[tokio::test]
async fn mistakes_are_errors_of_the_start() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let mut params = start_params("p", "", &workspace.policy());
    params["argv"] = json!(["no-such-program"]);
    let error = client.call_error("process/start", params.clone()).await;
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("notFound")));
    params["argv"] = json!(["true"]);
    params["cwd"] = json!("file:///no/such/directory");
    let error = client.call_error("process/start", params.clone()).await;
    let message = error["message"].as_str().unwrap();
    assert!(message.starts_with("cwd /no/such/directory in the sandbox of the process: No such file"), "{error}");
    params["cwd"] = json!("file:///");
    let deny = |path: &str| path_entry(path, "deny");
    for (denied, cwd, expected) in [
        (workspace.uri(), workspace.uri(), format!("cwd {}", workspace.path().display())),
        ("file:///usr/bin".to_owned(), "file:///".to_owned(), "true".to_owned()),
    ] {
        let mut hidden = params.clone();
        (hidden["cwd"], hidden["sandbox"]) = (json!(cwd), crate::policy(vec![deny(&denied)], "restricted"));
        let error = client.call_error("process/start", hidden).await;
        let expected = format!("{expected} in the sandbox of the process: ");
        assert!(error["message"].as_str().unwrap().starts_with(&expected), "{error}");
        assert_eq!(error["data"]["kind"], "permissionDenied");
    }
    params["sandbox"]["permissions"]["file_system"]["entries"][0]["path"]["path"] = json!("file:///C:/x");
    let error = client.call_error("process/start", params).await;
    assert_eq!(
        (&error["code"], error["message"].as_str().unwrap().contains("invalid sandbox permission path URI")),
        (&json!(-32602), true)
    );
}

#[tokio::test]
async fn the_shell_of_a_snapshot_runs_under_the_policy_of_the_command() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".profile"), "echo escaped > \"$HOME/made\"; export FROM_PROFILE=yes\n").unwrap();
    let mut client = server.client().await;
    let mut params = start_params("p", "", &workspace.policy());
    params["argv"] = json!(["/bin/sh", "-lc", "echo $FROM_PROFILE"]);
    params["env"]["HOME"] = json!(home.path());
    params["shellSnapshot"] = json!({"scopeId": "s", "shell": {"name": "sh", "path": "/bin/sh"}});
    let ended = run(&mut client, params.clone()).await;
    assert_eq!(ended.output, "yes\n");
    assert!(!home.path().join("made").exists());

    // Without a sandbox the same profile does write.
    params["processId"] = json!("unconfined");
    params["sandbox"] = json!(null);
    params["shellSnapshot"]["scopeId"] = json!("other");
    assert_eq!(client.call("process/start", params).await["sandboxType"], "none");
    assert_eq!(crate::until_closed(&mut client, "unconfined").await.output, "yes\n");
    assert_eq!(std::fs::read_to_string(home.path().join("made")).unwrap(), "escaped\n");
}

#[tokio::test]
async fn commands_of_one_policy_share_a_sandbox_and_start_at_the_same_time() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    for number in 0..32 {
        client.send("process/start", start_params(&format!("p{number}"), "echo $$", &workspace.policy())).await;
    }
    for number in 0..32 {
        let ended = crate::until_closed(&mut client, &format!("p{number}")).await;
        assert_eq!((ended.output.as_str(), &ended.exited["exitCode"]), ("2\n", &json!(0)));
    }
    // The init processes have a name of their own, but for the moment in which they begin.
    let launchers = || descendants_named(&server, "exec-launcher").len();
    eventually("there is one launcher", || (launchers() == 1).then_some(())).await;
    run(&mut client, start_params("other", "true", &workspace.policy_with(&[], "enabled"))).await;
    eventually("another policy has its own launcher", || (launchers() == 2).then_some(())).await;
}

#[tokio::test]
async fn a_session_uses_sixteen_policies_at_once() {
    let (server, workspace) = (TestServer::start().await, Workspace::new());
    let mut client = server.client().await;
    let start = |number: usize| {
        let name = format!("d{number}");
        std::fs::create_dir_all(workspace.path().join(&name)).unwrap();
        let read_only = path_entry(&format!("{}/{name}", workspace.uri()), "read");
        let sandbox = workspace.policy_with(&[read_only], "restricted");
        start_params(&format!("p{number}"), "exec sleep 600", &sandbox)
    };
    for number in 0..16 {
        assert_eq!(client.call("process/start", start(number)).await["sandboxType"], "linuxSeccomp");
    }
    let error = client.call_error("process/start", start(16)).await;
    let message = "failed to prepare process sandbox: the session uses 16 sandboxes at once, which is the most; \
                   end processes, or use fewer different policies";
    assert_eq!(error, json!({"code": -32602, "message": message}));
    // A policy that is in use already needs no further sandbox, and other sessions have their own.
    let mut again = start(3);
    again["processId"] = json!("again");
    client.call("process/start", again).await;
    let mut other = server.client().await;
    other.call("process/start", start(16)).await;

    client.call("process/terminate", json!({"processId": "p5"})).await;
    crate::until_closed(&mut client, "p5").await;
    eventually_async("the seventeenth policy can be used", async || {
        client.request("process/start", start(16)).await.get("result").cloned()
    })
    .await;
}
