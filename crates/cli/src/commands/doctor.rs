//! `doctor`: prints what this machine can enforce. The server's own code measures it; this module only prints the answers.

use std::process::ExitCode;

use anyhow::Context as _;
use exec_server::{ExecServerRuntimePaths, HostProcess, ServerConfig};
use serde_json::{Value, json};
use server::{EnforceablePolicies, MachineReport, check_machine};

use super::args::DoctorArgs;
use super::print::print;
use crate::runtime::check_server_threads;
use crate::terminal_text::{json_line, readable};

/// The width of the first column, with the space after it.
const STATE_WIDTH: usize = 9;

pub(crate) async fn doctor(args: DoctorArgs) -> anyhow::Result<ExitCode> {
    // The command itself needs fewer threads than a server.
    check_server_threads().context("a server cannot run here")?;
    let paths = ExecServerRuntimePaths::of_this_program().context("cannot find the path of this program")?;
    let config =
        ServerConfig { guard: paths.guard(), sandbox_launcher: paths.sandbox_launcher(), ..ServerConfig::default() };
    // As a server does, so that the answers are those of a server.
    let host = HostProcess::dedicate().context("cannot prepare this process for running commands")?;
    let report = check_machine(&config, host).await.context("cannot examine this machine")?;
    print(&if args.json { json_line(&as_value(&report)) } else { lines(&report) }).await?;
    Ok(if report.policies() == EnforceablePolicies::All { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One thing that a machine can or cannot do.
struct ReportLine {
    /// The member of the JSON object.
    name: &'static str,
    text: String,
    /// What is missing, and what to do.
    advice: Option<String>,
}

fn report_lines(report: &MachineReport) -> Vec<ReportLine> {
    let line = |name, text: &str, outcome: &Result<(), String>| ReportLine {
        name,
        text: text.to_owned(),
        advice: outcome.as_ref().err().cloned(),
    };
    vec![
        line("namespaces", "sandboxes with namespaces", &report.namespaces),
        line("ownProc", "sandboxed commands have their own /proc", &report.own_proc),
        line("sandboxedFiles", "file operations in sandboxes", &report.sandboxed_files),
        line("seccomp", "filters of system calls (seccomp)", &report.seccomp),
        line("landlock", "sandboxes with Landlock, for a few policies", &report.landlock),
        line("processTags", "tags, by which processes are found and ended", &report.process_tags),
        line("treeLimits", "limits of memory and processes for whole trees (cgroups)", &report.tree_limits),
        line("guard", "a guard, which ends all processes if the server is killed", &report.guard),
    ]
}

fn lines(report: &MachineReport) -> String {
    let mut text = String::new();
    let report_lines = report_lines(report);
    // Advice refers to other lines by their names in JSON, which a person does not see.
    let in_words = |advice: &str| {
        report_lines.iter().fold(readable(advice), |advice, line| {
            advice.replace(&format!("`{}`", line.name), &format!("\"{}\"", line.text))
        })
    };
    for line in &report_lines {
        let state = if line.advice.is_none() { "ok" } else { "missing" };
        text += &format!("{state:<STATE_WIDTH$}{}\n", line.text);
        if let Some(advice) = &line.advice {
            text += &format!("{:STATE_WIDTH$}{}\n", "", in_words(advice));
        }
    }
    text + summary(report.policies()) + "\n"
}

fn summary(policies: EnforceablePolicies) -> &'static str {
    match policies {
        EnforceablePolicies::All => "all policies are enforced",
        EnforceablePolicies::AllForCommands => {
            "all policies are enforced for commands; file operations with a policy are refused"
        }
        EnforceablePolicies::AllForFiles => {
            "all policies are enforced for file operations; commands with a policy cannot be started"
        }
        EnforceablePolicies::OnlyLandlock => {
            "only policies that Landlock can enforce (docs/sandbox.md); others, and file operations with a policy, are refused"
        }
        EnforceablePolicies::None => "no policy is enforced; requests with a sandbox are refused",
    }
}

fn as_value(report: &MachineReport) -> Value {
    let policies = match report.policies() {
        EnforceablePolicies::All => "all",
        EnforceablePolicies::AllForCommands => "allForCommands",
        EnforceablePolicies::AllForFiles => "allForFiles",
        EnforceablePolicies::OnlyLandlock => "onlyLandlock",
        EnforceablePolicies::None => "none",
    };
    let mut object = json!({"policies": policies});
    for line in report_lines(report) {
        object[line.name] = json!({"ok": line.advice.is_none(), "advice": line.advice});
    }
    object["landlock"]["version"] = json!(report.landlock_version);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_other_lines_as_they_are_shown() {
        let dependent = || Err("this needs sandboxes with namespaces (see `namespaces`); use `sysctl`".to_owned());
        let report = MachineReport {
            namespaces: Err("user namespaces are disabled".to_owned()),
            own_proc: dependent(),
            sandboxed_files: dependent(),
            seccomp: Ok(()),
            landlock: Ok(()),
            landlock_version: Some(6),
            process_tags: Ok(()),
            tree_limits: Ok(()),
            guard: Ok(()),
        };
        let expected = "\nmissing  file operations in sandboxes\n         this needs sandboxes with namespaces (see \
                        \"sandboxes with namespaces\"); use `sysctl`\n";
        assert!(lines(&report).contains(expected), "{}", lines(&report));
        assert_eq!(as_value(&report)["ownProc"]["advice"], dependent().unwrap_err());
    }
}
