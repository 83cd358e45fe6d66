//! Measures the product and the limit of this machine in the same run, and prints both as a table. A figure that
//! misses its goal is marked, and the run still succeeds. `cargo xtask bench` builds and runs this program.
//!
//! Each module measures one area, except for these, which the others share: `bare`, `peer`, `processors`, `raw`,
//! `sample` and `table`. Arguments choose the benchmarks whose names contain one of them; without arguments all run.
//! `--markdown` prints the table as Markdown.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "this program prints a table")]

mod bare;
mod echo;
mod embedded;
mod files;
mod memory;
mod one_shot;
mod output;
mod peer;
mod ports;
mod processors;
mod raw;
mod relayed;
mod sample;
mod sandboxed;
mod table;
mod terminate;

use anyhow::Result;

use table::Row;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // Freed memory up to a limit stays in this process, as in the product, so that the kernel need not map and clear
    // new memory for the buffers of each message.
    spawn::limit_kept_freed_memory();
    // A benchmark has started this program once more, as its peer: a server that only sends messages back.
    if args.first().is_some_and(|first| first == peer::ARGUMENT) {
        return peer::serve();
    }
    if args.first().is_some_and(|first| first == relayed::RELAY_ARGUMENT) {
        return relayed::serve_relay();
    }
    let markdown = args.iter().any(|arg| arg == "--markdown");
    let words: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let rows: Vec<Row> = runtime.block_on(async {
        let mut rows = Vec::new();
        if wanted("one-shot") {
            eprintln!("measuring one-shots …");
            rows.extend(one_shot::latency().await?);
            rows.push(one_shot::throughput().await?);
        }
        if wanted("output") {
            eprintln!("measuring output …");
            rows.extend(output::one_gibibyte().await?);
        }
        if wanted("sandbox") {
            eprintln!("measuring sandboxes …");
            rows.extend(sandboxed::figures().await?);
        }
        if wanted("client") {
            eprintln!("measuring the client library …");
            rows.push(embedded::one_shot().await?);
            rows.push(embedded::recovery().await?);
        }
        if wanted("silence") {
            eprintln!("measuring a connection that goes silent …");
            rows.push(embedded::silence().await?);
        }
        if wanted("run") {
            eprintln!("measuring `exec-server run` …");
            rows.push(embedded::gibibyte_through_run()?);
        }
        if wanted("port") {
            eprintln!("measuring forwarded ports …");
            rows.push(ports::one_gibibyte().await?);
        }
        if wanted("echo") {
            eprintln!("measuring terminal echo …");
            rows.push(echo::one_byte().await?);
        }
        if wanted("relay") {
            eprintln!("measuring remote mode …");
            rows.extend(relayed::figures().await?);
        }
        if wanted("memory") {
            eprintln!("measuring memory …");
            rows.extend(memory::size_and_memory().await?);
        }
        if wanted("files") {
            eprintln!("measuring files …");
            rows.extend(files::small_files().await?);
            rows.push(files::walk().await?);
        }
        if wanted("copy") {
            eprintln!("measuring copies …");
            rows.extend(files::copy::throughput().await?);
            rows.extend(files::copy::peak_memory().await?);
        }
        if wanted("search") {
            eprintln!("measuring a search …");
            rows.push(files::search().await?);
        }
        if wanted("terminate") {
            eprintln!("measuring `process/terminate` …");
            rows.push(terminate::many_at_once().await?);
        }
        if wanted("crowd") {
            eprintln!("measuring one-shots while 1,000 other processes run …");
            rows.push(one_shot::while_many_processes_run().await?);
        }
        anyhow::Ok(rows)
    })?;
    print!("{}", if markdown { table::markdown(&rows) } else { table::text(&rows) });
    Ok(())
}
