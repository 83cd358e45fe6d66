//! Records of kept sessions, which outlive their connections. A record is a file with the id of a session and with
//! the time for which the server keeps the session. Its path is made from the URL of the server and the name that the
//! user gave the session.

use std::collections::BTreeSet;
use std::time::Duration;

use testkit::{TestServer, eventually_async, is_alive};

use crate::support::{KeptSession, command, records_folder_name, run};

#[tokio::test]
async fn commands_to_another_server_at_the_same_address_remove_no_record() {
    let state = tempfile::tempdir().unwrap();
    let url_of = |name: &str| format!("unix://{}", state.path().join(name).display());
    let _first = TestServer::with_args(&["--listen", &url_of("first")]).await;
    let _second = TestServer::with_args(&["--listen", &url_of("second")]).await;
    let url = url_of("address");
    let link_address_to = |name: &str| {
        let link = state.path().join("link");
        std::os::unix::fs::symlink(state.path().join(name), &link).unwrap();
        std::fs::rename(&link, state.path().join("address")).unwrap();
    };
    link_address_to("first");
    let run_command = async |args: &[&str]| {
        run(command(state.path()).arg(args[0]).args(["--connect", &url]).args(&args[1..])).await
    };
    assert_eq!(run_command(&["run", "-d", "--id", "job", "--", "sleep", "1000"]).await.code, 0);
    link_address_to("second");
    for args in [&["ps"][..], &["logs", "job"], &["kill", "job"]] {
        let output = run_command(args).await;
        let expected =
            format!("exec-server: the server at {url} does not have the session `default`, or not any more: ");
        assert!(output.code == 1 && output.stderr.starts_with(&expected), "{output:?}");
    }
    // The new session gets the name, and the record of the old session is kept under another name.
    let output = run_command(&["run", "-d", "--", "true"]).await;
    let expected = format!(
        "exec-server: the server at {url} does not have the session `default`, so a new one was started; if the \
         server that has the old one comes back, use --session default.former\n"
    );
    assert_eq!((output.code, output.stderr), (0, expected));
    link_address_to("first");
    let output = run_command(&["kill", "-s", "default.former", "job"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (0, "job: was running, ended\n"), "{}", output.stderr);
}

#[tokio::test]
async fn sessions_whose_name_is_used_again_stay_recorded() {
    let state = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", state.path().join("address").display());
    // A name has at most 64 characters, so a long name is shortened before `.former` is added.
    let name = "x".repeat(60);
    // The contents of all records after each round.
    let mut records = Vec::new();
    for expected in [None, Some(format!("{}.former", "x".repeat(57))), Some(format!("{}.former-2", "x".repeat(55)))] {
        let server = TestServer::with_args(&["--listen", &url]).await;
        let output =
            run(command(state.path()).args(["run", "-d", "-s", &name, "--connect", &url, "--", "true"])).await;
        let former = output.stderr.trim().rsplit_once(" --session ").map(|(_, former)| former.to_owned());
        assert_eq!((output.code, former), (0, expected), "{}", output.stderr);
        let sessions = state.path().join("exec-server/sessions").join(records_folder_name(&url));
        let known: BTreeSet<String> = std::fs::read_dir(sessions)
            .unwrap()
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect();
        records.push(known);
        server.kill().await;
    }
    assert_eq!(records.iter().map(BTreeSet::len).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(records.is_sorted_by(BTreeSet::is_subset), "{records:?}");
}

#[tokio::test]
async fn only_a_command_with_keep_shortens_the_lifetime_of_its_session() {
    let kept = KeptSession::with_args(&["--session-ttl", "1ms"]).await;
    let start = async |args: &[&str]| {
        let all = [&["run", "-s", "other", "-d"], args, &["--", "sleep", "1000"]].concat();
        assert_eq!(kept.run(&all).await.code, 0);
    };
    let record = || std::fs::read_to_string(kept.record("other")).unwrap();
    let recorded_lifetime = || record().lines().nth(1).map(|line| Duration::from_millis(line.parse().unwrap()));
    start(&["--keep", "1ms"]).await;
    assert_eq!(recorded_lifetime(), Some(Duration::from_millis(1)));
    // The old session has ended. So this command makes a new session with the default of `--keep`, 24 hours.
    start(&[]).await;
    assert_eq!(recorded_lifetime(), Some(Duration::from_secs(24 * 3600)));
    start(&["--keep", "100h"]).await;
    start(&[]).await;
    assert_eq!(recorded_lifetime(), Some(Duration::from_secs(100 * 3600)));
    let output = kept.run(&["ps", "-s", "other", "--json"]).await;
    let processes: Vec<client::ProcessSummary> = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(processes.len(), 3, "{}", output.stderr);
    start(&["--keep", "1ms"]).await;
    let pid = processes[0].pid.unwrap();
    eventually_async("the requested lifetime is used", async || (!is_alive(pid)).then_some(())).await;
}
