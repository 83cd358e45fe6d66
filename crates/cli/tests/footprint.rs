//! A process that has closed costs the server no descriptor and no thread. After `--process-retention` the server
//! forgets the process, and frees its memory.

use testkit::{Client, TestServer, eventually, eventually_async, json, open_fds, resident_bytes, threads};

async fn run_on_terminal(client: &mut Client, process: &str) {
    let mut params = Client::start_params(process, &["echo", "hello"]);
    params["tty"] = true.into();
    client.call("process/start", params).await;
    assert_eq!(client.outcome(process).await.pty, b"hello\r\n");
}

#[tokio::test]
async fn closed_processes_give_back_descriptors_and_threads_and_are_forgotten() {
    let server = TestServer::with_args(&["--process-retention", "100ms"]).await;
    let mut client = server.client().await;
    client.run("first", &["true"]).await;
    let pid = server.pid();
    let fds = || open_fds(pid);
    let (fds_before, threads_before) = (fds(), threads(pid));
    for number in 0..300 {
        client.start(&format!("pipes {number}"), &["true"]).await;
    }
    for number in 0..300 {
        client.outcome(&format!("pipes {number}")).await;
    }
    for number in 0..30 {
        run_on_terminal(&mut client, &format!("terminal {number}")).await;
        client.start(&format!("killed {number}"), &["sh", "-c", "sleep 1000 & sleep 1000"]).await;
        client.call("process/terminate", json!({"processId": format!("killed {number}")})).await;
    }
    eventually("there are no more descriptors than before", || (fds() <= fds_before).then_some(())).await;
    eventually("there are no more threads than before", || (threads(pid) <= threads_before).then_some(())).await;
    eventually_async("closed processes are forgotten", async || {
        (client.processes().await == json!([])).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_closed_process_that_is_still_readable_has_no_descriptors() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let pid = server.pid();
    let before = open_fds(pid);
    for number in 0..20 {
        run_on_terminal(&mut client, &number.to_string()).await;
    }
    for number in 20..40 {
        let mut params = Client::start_params(&number.to_string(), &["cat"]);
        params["pipeStdin"] = true.into();
        client.call("process/start", params).await;
        client.close_stdin(&number.to_string()).await;
        client.outcome(&number.to_string()).await;
    }
    eventually("there are no more descriptors than before", || (open_fds(pid) <= before).then_some(())).await;
    assert_eq!(client.processes().await.as_array().unwrap().len(), 40);
}

#[tokio::test]
async fn memory_of_forgotten_processes_is_given_back() {
    const ALLOWED_GROWTH_BYTES: usize = 8 << 20;
    let server = TestServer::with_args(&["--process-retention", "2s"]).await;
    let mut client = server.client().await;
    let pid = server.pid();
    for round in 0..2 {
        client.run(&format!("warm up {round}"), &["head", "-c", "4194304", "/dev/zero"]).await;
    }
    let before = resident_bytes(pid);
    for number in 0..50 {
        client.run(&format!("{number}"), &["head", "-c", "2097152", "/dev/urandom"]).await;
    }
    let with_output = resident_bytes(pid);
    assert!(with_output > before + (30 << 20), "the output is not retained: {before} {with_output}");
    let is_freed = || (resident_bytes(pid) < before + ALLOWED_GROWTH_BYTES).then_some(());
    eventually("the memory is freed", is_freed).await;
}
