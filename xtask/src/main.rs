//! The project's chores, run as `cargo xtask <chore>`: they build, check and measure the project. They use no code of
//! the product.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line tool talks to the person who started it"
)]

mod bench;
mod mcp_server;
mod step;
mod test;
mod tidy;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <chore>

  test              install what the tests need, then check formatting, lints, tidy and docs, and run all tests
  test <filter>...  run no checks, and only the tests that match; the arguments go to the test runner (nextest)
  tidy              check what compilers do not: layers, order of modules, licences, names, lengths, texts
  bench [WORD]...   measure, and print the figures as a table; with words, only areas whose names contain one of them
                    (one-shot, output, client, silence, run, echo, memory, files, copy, search, terminate, crowd)
  bench --markdown  print the table as Markdown, as in docs/benchmarks.md
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["test"] => test::run_all(),
        ["test", filter @ ..] => test::run_filtered(filter),
        ["tidy"] => tidy::run(),
        ["bench", args @ ..] => bench::run(args),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
