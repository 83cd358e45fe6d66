//! The JSON of sandbox policies, for several tests. Each of them includes this file as a module.

use testkit::{Value, json};

/// An entry for a path, which is a `file:` URI.
pub(crate) fn path_entry(uri: &str, access: &str) -> Value {
    json!({"path": {"type": "path", "path": uri}, "access": access})
}

/// An entry for a path that the policy names by a word, such as `{"kind": "root"}`.
pub(crate) fn special_entry(value: Value, access: &str) -> Value {
    json!({"path": {"type": "special", "value": value}, "access": access})
}

/// A `sandbox` object with these entries. Nothing else is allowed. `network` is `restricted` or `enabled`.
pub(crate) fn restricted(entries: Vec<Value>, network: &str) -> Value {
    json!({
        "permissions": {
            "type": "managed", "network": network,
            "file_system": {"type": "restricted", "entries": entries},
        },
        "windowsSandboxLevel": "disabled",
    })
}
