//! The form of what `exec-server doctor` prints, and the advice for what is missing.

use testkit::{Value, json};

use crate::machines::{Machine, Present};

/// Documented in docs/sandbox.md, and not to be renamed.
const MEMBERS: [&str; 8] =
    ["guard", "landlock", "namespaces", "ownProc", "processTags", "sandboxedFiles", "seccomp", "treeLimits"];

fn is_ok(object: &Value, name: &str) -> bool {
    object[name]["ok"].as_bool().unwrap()
}

#[tokio::test]
async fn each_line_is_ok_or_has_its_advice_and_json_says_the_same() {
    let machine = Machine::imitate(Present::Yes, Present::Yes).await;
    let (lines, object, code) = machine.doctor().await;
    assert_eq!(code, Some(0), "{lines}");
    assert_eq!(lines.lines().last().unwrap(), "all policies are enforced");
    for name in ["namespaces", "sandboxedFiles", "seccomp", "landlock", "guard"] {
        assert!(is_ok(&object, name), "{name} {object}");
    }
    assert!(object["landlock"]["version"].as_u64().unwrap() >= 6);
    let members: Vec<&String> = object.as_object().unwrap().keys().filter(|name| *name != "policies").collect();
    assert_eq!(members, MEMBERS);
    let missing = MEMBERS.iter().filter(|name| !is_ok(&object, name));
    for name in missing.clone() {
        assert!(lines.contains(&format!("\n         {}\n", object[name]["advice"].as_str().unwrap())), "{lines}");
    }
    assert_eq!(lines.lines().filter(|line| line.starts_with("missing  ")).count(), missing.count(), "{lines}");
    assert_eq!(lines.lines().filter(|line| line.starts_with("ok       ")).count(), {
        MEMBERS.iter().filter(|name| is_ok(&object, name)).count()
    });
}

#[tokio::test]
async fn what_is_missing_is_named_with_the_command_that_provides_it() {
    let machine = Machine::imitate(Present::No, Present::No).await;
    let (lines, object, code) = machine.doctor().await;
    assert_eq!(code, Some(1), "{lines}");
    let namespaces = "user namespaces are disabled on this machine; enable them as root with \
                      `sysctl -w user.max_user_namespaces=15000`";
    assert_eq!(object["namespaces"], json!({"ok": false, "advice": namespaces}));
    assert!(lines.starts_with(&format!("missing  sandboxes with namespaces\n         {namespaces}\n")), "{lines}");
    assert!(object["landlock"]["advice"].as_str().unwrap().contains("use Linux 6.12 or newer"), "{object}");
    assert_eq!((&object["landlock"]["version"], &object["policies"]), (&Value::Null, &json!("none")));
    assert!(is_ok(&object, "seccomp") && is_ok(&object, "guard"), "{object}");
    assert!(!is_ok(&object, "ownProc") && !is_ok(&object, "sandboxedFiles"), "{object}");
    assert!(lines.ends_with("\nno policy is enforced; requests with a sandbox are refused\n"), "{lines}");
}
