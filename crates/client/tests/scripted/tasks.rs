//! All tasks of a client end when the client ends, and a server cannot fill the queues of a client without bound.

use client::{Connecting, EventsLagged, ExecProcessEvent, ExecServerClient, ServerConnector};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, eventually, json};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::support::{connect, options, params};

/// Connects a client that runs in another tokio runtime. The tasks of the scripted server stay in the runtime of the
/// test, so the metrics of the other runtime do not count them.
struct CrossRuntimeConnector {
    server: ScriptedServer,
    server_runtime: Handle,
}

impl ServerConnector for CrossRuntimeConnector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            // Until this guard is dropped, new tasks run in the runtime of the server.
            let _runtime_guard = self.server_runtime.enter();
            Ok(self.server.dial().into())
        })
    }

    fn can_reconnect(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        "a scripted server".to_owned()
    }
}

fn connector(server: &ScriptedServer) -> CrossRuntimeConnector {
    CrossRuntimeConnector { server: server.clone(), server_runtime: Handle::current() }
}

fn client_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn wait_until_no_task_is_left(runtime: Runtime) {
    eventually("no task of the client is left", || (runtime.metrics().num_alive_tasks() == 0).then_some(())).await;
    // Dropping the runtime would wait for its threads, which an async task must not do.
    runtime.shutdown_background();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_client_leaves_no_task() {
    let server = ScriptedServer::new();
    let (connector, runtime) = (connector(&server), client_runtime());
    let metrics = runtime.metrics();
    let tasks_after_close = runtime.spawn(async move {
        let client = ExecServerClient::connect(connector, options()).await.unwrap();
        let process = client.start(params("p")).await.unwrap();
        let mut state = client.connection_state();
        server.cut();
        server.wait_for("initialize", 2).await;
        state.wait_for(|state| *state == client::ConnectionState::Connected).await.unwrap();
        assert!(metrics.num_alive_tasks() > 4, "supervisor, job runner, reader and writer run beside this task");
        client.close().await;
        drop(process);
        metrics.num_alive_tasks()
    });
    // The runtime may still count a task that has just ended.
    let tasks = tasks_after_close.await.unwrap();
    assert!(tasks <= 2, "{tasks} tasks are alive although close() has returned");
    wait_until_no_task_is_left(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_client_leaves_no_task_even_while_it_reconnects() {
    let server = ScriptedServer::new();
    let (connector, runtime) = (connector(&server), client_runtime());
    runtime
        .spawn(async move {
            let client = ExecServerClient::connect(connector, options()).await.unwrap();
            let process = client.start(params("p")).await.unwrap();
            server.on("initialize", |_| ScriptedReply::Silence);
            server.cut();
            server.wait_for("initialize", 2).await;
            drop((client, process));
        })
        .await
        .unwrap();
    wait_until_no_task_is_left(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_client_leaves_no_task() {
    let server = ScriptedServer::new();
    server.on("initialize", |_| ScriptedReply::Error(-32600, "not today".into()));
    let (connector, runtime) = (connector(&server), client_runtime());
    let refused = runtime.spawn(async move { ExecServerClient::connect(connector, options()).await.map(drop) });
    assert_eq!(refused.await.unwrap().unwrap_err().to_string(), "not today");
    wait_until_no_task_is_left(runtime).await;
}

/// More events than the feed of a process, the queue for its subscribers, keeps.
const FLOOD: u64 = 70_000;

#[tokio::test]
async fn unread_events_of_a_process_are_bounded() {
    let server = ScriptedServer::new();
    // A server without the capability `processFlow` cannot pause the events of a process.
    server.on("environment/info", |_| ScriptedReply::Result(json!({"shell": {"name": "sh", "path": "/bin/sh"}})));
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.subscribe_events();
    let connection = server.connection();
    for seq in 1..=FLOOD {
        connection.push_output("p", seq, "x");
    }
    server.push_exited("p", FLOOD + 1, 0);
    server.push_closed("p", FLOOD + 2);
    let mut last = process.subscribe_wake();
    last.wait_for(|last| *last == FLOOD + 2).await.unwrap();
    assert_eq!(events.recv().await, Err(EventsLagged));
    let mut kept = 0;
    while let Some(event) = events.recv().await.unwrap() {
        kept += 1;
        assert!(!matches!(event, ExecProcessEvent::Failed(_)), "{event:?}");
    }
    assert_eq!(kept, 65_536);
}
