//! Measures the size of the program `exec-server`, and the memory of a server: alone, for each idle session and for
//! each live process.

use anyhow::Result;
use testkit::{TestServer, binary, resident_bytes};

use crate::raw::RawClient;
use crate::table::{Goal, Measurement, Row};

/// Idle sessions over which the growth of the server's memory is averaged.
const SESSIONS: usize = 200;
/// Live processes over which the growth of the server's memory is averaged.
const PROCESSES: usize = 500;
const LARGEST_PROGRAM_BYTES: usize = 13_000_000;

pub(crate) async fn size_and_memory() -> Result<Vec<Row>> {
    let server = TestServer::start().await;
    let bytes = |n: usize| Measurement::Bytes(n as f64);
    let alone = resident_bytes(server.pid());

    // The first connections allocate memory that later connections share. It does not count as memory of a session.
    let mut clients = Vec::new();
    for _ in 0..SESSIONS / 10 {
        clients.push(RawClient::connect(server.url()).await?);
    }
    let before = resident_bytes(server.pid());
    for _ in 0..SESSIONS {
        clients.push(RawClient::connect(server.url()).await?);
    }
    let per_session = resident_bytes(server.pid()).saturating_sub(before) / SESSIONS;

    // The memory that the first processes allocate and later processes share does not count either.
    let mut client = RawClient::connect(server.url()).await?;
    for number in 0..PROCESSES / 10 {
        client.send_start(&format!("warm{number}"), &["/usr/bin/sleep", "1000"], false).await?;
        client.next().await?;
    }
    let before = resident_bytes(server.pid());
    for number in 0..PROCESSES {
        client.send_start(&format!("live{number}"), &["/usr/bin/sleep", "1000"], false).await?;
        client.next().await?;
    }
    let per_process = resident_bytes(server.pid()).saturating_sub(before) / PROCESSES;

    let up_to = |n: usize| Goal::UpTo(Measurement::Bytes(n as f64));
    let program = usize::try_from(binary().metadata()?.len())?;
    Ok(vec![
        Row {
            figure: "the program, stripped",
            ours: bytes(program),
            limit: None,
            goal: up_to(LARGEST_PROGRAM_BYTES),
        },
        Row { figure: "idle server, resident memory", ours: bytes(alone), limit: None, goal: up_to(8 << 20) },
        Row { figure: "per idle session", ours: bytes(per_session), limit: None, goal: up_to(20 << 10) },
        Row { figure: "per live process", ours: bytes(per_process), limit: None, goal: up_to(40 << 10) },
    ])
}
