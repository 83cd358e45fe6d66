//! Extension `sandboxDenials`: what the sandbox of a process has refused, in the exit event and in answers to reads.
//!
//! A client keeps such a list for as long as it knows the process, and shows it to people. So decoding bounds the list, whatever
//! a server sends.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::shortened;

/// How many denials of one list are kept. This server sends at most half as many.
const MAX_KEPT_DENIALS: usize = 64;

/// Something that a sandbox has refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxDenial {
    /// The system call that was refused, such as `socket`.
    pub operation: String,
    /// What the call was about, such as `AF_INET` for a socket. Absent if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// How often it was refused.
    pub count: u64,
}

/// Decodes a list. Denials after the first [`MAX_KEPT_DENIALS`] are left out, and names are [`shortened`].
pub(crate) fn kept_denials<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SandboxDenial>, D::Error> {
    struct DenialsVisitor;
    impl<'de> Visitor<'de> for DenialsVisitor {
        type Value = Vec<SandboxDenial>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut denials = Vec::new();
            while let Some(SandboxDenial { operation, target, count }) = list.next_element()? {
                if denials.len() < MAX_KEPT_DENIALS {
                    denials.push(SandboxDenial { operation: cut(operation), target: target.map(cut), count });
                }
            }
            Ok(denials)
        }
    }
    deserializer.deserialize_seq(DenialsVisitor)
}

fn cut(name: String) -> String {
    match shortened(&name) {
        Cow::Owned(beginning) => beginning,
        Cow::Borrowed(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{ExitedNotification, ReadResult};

    #[test]
    fn of_a_long_list_the_first_denials_and_the_beginnings_of_their_names_are_kept() {
        let list: Vec<_> = (0..5000)
            .map(|number| json!({"operation": "x".repeat(100_000 / (number + 1)), "target": "ä".repeat(150), "count": number}))
            .collect();
        let mut exited = json!({"processId": "p", "seq": 1, "exitCode": 1, "sandboxDenials": list});
        let event: ExitedNotification = serde_json::from_value(exited.clone()).unwrap();
        assert_eq!(event.sandbox_denials.len(), 64);
        for (number, denial) in (0..).zip(&event.sandbox_denials) {
            assert_eq!(denial.operation, format!("{}…", "x".repeat(200)));
            assert_eq!((denial.target.as_deref(), denial.count), (Some(&*format!("{}…", "ä".repeat(100))), number));
        }
        for (member, value) in
            [("chunks", json!([])), ("nextSeq", json!(2)), ("exited", json!(true)), ("closed", json!(true))]
        {
            exited[member] = value;
        }
        let answer: ReadResult = serde_json::from_value(exited).unwrap();
        assert_eq!(answer.sandbox_denials, event.sandbox_denials);
    }
}
