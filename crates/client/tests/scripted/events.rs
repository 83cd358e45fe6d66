//! Events that the server pushes, and their subscribers.

use client::{ExecProcessEvent, ExitResources, ProcessOutputChunk, Stream};
use testkit::ScriptedServer;
use testkit::scripted::{ScriptedReply, read_result};

use crate::support::{connect, options, params, try_connect};

fn output(seq: u64, bytes: &'static [u8]) -> ExecProcessEvent {
    ExecProcessEvent::Output(ProcessOutputChunk { seq, stream: Stream::Stdout, chunk: bytes.into() })
}

#[tokio::test]
async fn events_are_delivered_in_the_order_of_their_numbers() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.subscribe_events();
    server.push_closed("p", 4);
    server.push_output("p", 1, "one");
    server.push_exited("p", 3, 0);
    server.push_output("p", 2, "two");
    let mut received = Vec::new();
    while let Some(event) = events.recv().await.unwrap() {
        received.push(event);
    }
    let exited = ExecProcessEvent::Exited {
        seq: 3,
        exit_code: 0,
        sandbox_denied: Some(false),
        sandbox_denials: Vec::new(),
        timed_out: false,
        resources: ExitResources::NONE,
    };
    assert_eq!(received, [output(1, b"one"), output(2, b"two"), exited, ExecProcessEvent::Closed { seq: 4 }]);
    assert_eq!(server.count("process/read"), 0);
}

#[tokio::test]
async fn an_exit_says_what_the_sandbox_refused() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let denials = testkit::json!([{"operation": "socket", "target": "AF_INET", "count": 2}]);
    server.push(
        "process/exited",
        testkit::json!({"processId": "p", "seq": 1, "exitCode": 7, "sandboxDenied": true, "sandboxDenials": denials}),
    );
    server.push_closed("p", 2);
    let status = process.wait().await.unwrap();
    assert!(status.sandbox_denied);
    let [denial] = &status.sandbox_denials[..] else { panic!("{status:?}") };
    assert_eq!((&denial.operation[..], denial.target.as_deref(), denial.count), ("socket", Some("AF_INET"), 2));
    let event = process.events().next().await.unwrap();
    assert_eq!(event.exit_status(), Some(status));
}

#[tokio::test]
async fn a_noisy_process_delays_neither_other_processes_nor_calls() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let _noisy = client.start(params("noisy")).await.unwrap();
    let quiet = client.start(params("quiet")).await.unwrap();
    for seq in 1..=4097 {
        server.push_output("noisy", seq, "x");
    }
    server.push_exited("quiet", 1, 5);
    server.push_closed("quiet", 2);
    assert_eq!(quiet.wait().await.unwrap().code, 5);
    assert_eq!(client.environment_status().await.unwrap().status, "ready");
}

#[tokio::test]
async fn notifications_before_the_answer_to_a_resume_do_not_block_the_answer() {
    let server = ScriptedServer::new();
    server.on("initialize", |asked| {
        for seq in 1..=256 {
            asked.connection.push_output("of an earlier client", seq, "x");
        }
        ScriptedReply::Result(testkit::json!({"sessionId": asked.params["resumeSessionId"]}))
    });
    let mut options = options();
    options.resume_session_id = Some("earlier".into());
    let client = try_connect(&server, options).await.unwrap();
    assert_eq!(client.session_id().unwrap().as_str(), "earlier");
}

#[tokio::test]
async fn events_before_the_answer_to_the_start_are_not_lost() {
    let server = ScriptedServer::new();
    server.on("process/start", |asked| {
        asked.connection.push_output("p", 1, "early");
        ScriptedReply::Result(testkit::json!({"processId": "p", "sandboxType": "none"}))
    });
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    assert_eq!(process.events().next().await, Some(output(1, b"early")));
}

#[tokio::test]
async fn a_late_subscriber_gets_each_event_once_with_one_read() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let letter = |seq: u64| vec![b'a' + (seq % 26) as u8];
    server.on("process/read", move |_| {
        ScriptedReply::Result(read_result((1..=1024).map(|seq| (seq, letter(seq))), 1025))
    });
    let process = client.start(params("p")).await.unwrap();
    let mut early = process.events();
    for seq in 1..=1024 {
        server.push_output("p", seq, letter(seq));
        early.next().await.unwrap();
    }
    let mut late = process.events();
    let mut received = Vec::new();
    while received.len() < 1024 {
        let Some(ExecProcessEvent::Output(output)) = late.next().await else { panic!("the events end early") };
        assert_eq!(output.seq, received.len() as u64 + 1);
        received.extend(output.chunk);
    }
    server.push_exited("p", 1025, 0);
    server.push_closed("p", 1026);
    assert!(matches!(late.next().await, Some(ExecProcessEvent::Exited { seq: 1025, exit_code: 0, .. })));
    assert_eq!(late.next().await, Some(ExecProcessEvent::Closed { seq: 1026 }));
    assert_eq!(late.next().await, None);
    assert_eq!(received, (1..=1024).flat_map(letter).collect::<Vec<_>>());
    assert_eq!(server.count("process/read"), 1);
}
