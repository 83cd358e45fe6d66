//! Checks that the tests know all limits of `--help-limits`. A new limit must be added to the list in this file,
//! together with a test that reaches the limit.

use testkit::run_to_end;

#[tokio::test]
async fn every_limit_is_in_the_list_of_tested_limits() {
    let output = run_to_end(&["--help-limits"]).await;
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let listed: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("--")?.split(' ').next()).collect();
    let mut tested = [
        "session-ttl",
        "retain-bytes",
        "retain-total-bytes",
        "max-connections",
        "max-handshakes",
        "max-sessions",
        "max-processes",
        "max-kept-processes",
        "max-requests",
        "max-message-bytes",
        "max-start-bytes",
        "max-id-bytes",
        "max-queued-stdin",
        "max-queued-stdin-total",
        "max-file-handles",
        "max-file-operations",
        "max-file-operations-total",
        "max-searches",
        "max-large-answers",
        "max-watches",
        "max-watch-changes",
        "max-http-requests",
        "max-buffered-http",
        // These four are tested in `ports/hostile_clients.rs`.
        "max-port-streams",
        "max-port-streams-total",
        "max-port-buffers",
        "port-connect-timeout",
        "max-wait",
        "process-retention",
        "max-session-ttl",
        "detached-hold",
        "ping-interval",
        "pong-deadline",
        "takeover-after",
        "shutdown-grace",
        // No test reaches this limit, because that needs a process that survives SIGKILL, for example on a file
        // system that hangs.
        "kill-patience",
        "exit-when-idle",
    ];
    let mut listed_sorted = listed;
    listed_sorted.sort_unstable();
    tested.sort_unstable();
    assert_eq!(listed_sorted, tested);
}

#[tokio::test]
async fn invalid_values_are_refused() {
    for args in [
        ["--max-connections", "many"],
        ["--max-connections", "1.5"],
        ["--max-connections", "0"],
        ["--max-requests", "0"],
        ["--max-requests", "9999999999999999999"],
        ["--max-message-bytes", "64 parsecs"],
        ["--session-ttl", "30"],
        ["--session-ttl", "1fortnight"],
        ["--retain-bytes", ""],
    ] {
        let output = run_to_end(&args).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(args[0]), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}
