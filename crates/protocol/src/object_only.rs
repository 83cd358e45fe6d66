//! Makes serde read types only from JSON objects. Serde also fills the members of a struct, and of an enum with a tag, from an
//! array. The protocol has no such form: a policy or a limit that a client writes so must be refused, not guessed.
//!
//! Start with the macro `objects_only`. [`decode_params`](crate::decode_params) does the same for params themselves.

use serde::Deserializer;
use serde::de::Visitor;

/// A deserializer that accepts only an object, whatever it is asked for.
pub(crate) struct ObjectOnly<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ObjectOnly<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// Lets these types decode only from an object. Each derives `Serialize` and `Deserialize` with `#[serde(remote = "Self")]`:
/// then serde makes functions of the type instead of the two traits, and this macro implements the traits with them.
macro_rules! objects_only {
    ($($name:ident),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize(crate::object_only::ObjectOnly(deserializer))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }
    )+};
}

pub(crate) use objects_only;

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::value::RawValue;

    use crate::fs::{CommitParams, FileParams, WalkParams};
    use crate::{
        DiscoverParams, HttpRequestParams, NetworkPolicyResult, ReadParams, ResizeParams, SandboxContext,
        StartParams, decode_params,
    };

    fn decode<T: DeserializeOwned>(params: &str) -> Result<T, String> {
        let params = RawValue::from_string(params.to_owned()).unwrap();
        decode_params(Some(&params)).map_err(|error| {
            assert_eq!(error.code, -32602);
            error.message
        })
    }

    /// Checks that the params decode as they are, and not with an array in place of the object.
    #[track_caller]
    fn check<T: DeserializeOwned>(params: &str, object: &str, array: &str, expected: &str) {
        assert_eq!(decode::<T>(&params.replace("VALUE", object)).err(), None);
        let refusal = decode::<T>(&params.replace("VALUE", array)).err();
        assert_eq!(refusal, Some(format!("invalid type: sequence, expected {expected}")), "{array}");
    }

    #[test]
    fn parts_of_a_policy_are_not_read_from_arrays() {
        let sandbox = r#"{"permissions":{"type":"disabled"},"windowsSandboxLevel":"disabled"}"#;
        let array = r#"[{"type":"disabled"},null,[],"disabled"]"#;
        check::<FileParams>(r#"{"path":"file:///a","sandbox":VALUE}"#, sandbox, array, "struct SandboxContext");
        let roots = r#"{"roots":[{"id":"r","path":"file:///a","sandbox":VALUE}]}"#;
        check::<DiscoverParams>(roots, sandbox, array, "struct SandboxContext");
        let permissions = r#"{"permissions":VALUE,"windowsSandboxLevel":"disabled"}"#;
        let disabled = r#"{"type":"disabled"}"#;
        check::<SandboxContext>(permissions, disabled, r#"["disabled"]"#, "internally tagged enum Permissions");
        let files = permissions.replace("VALUE", r#"{"type":"managed","file_system":VALUE,"network":"enabled"}"#);
        let unrestricted = r#"{"type":"unrestricted"}"#;
        let expected = "internally tagged enum FileSystemPermissions";
        check::<SandboxContext>(&files, unrestricted, r#"["unrestricted"]"#, expected);
        let entry = files.replace("VALUE", r#"{"type":"restricted","entries":[VALUE]}"#);
        let root = r#"{"type":"special","value":{"kind":"root"}}"#;
        let (object, array) = (format!(r#"{{"path":{root},"access":"read"}}"#), format!(r#"[{root},"read"]"#));
        check::<SandboxContext>(&entry, &object, &array, "struct PermissionEntry");
        let path = entry.replace("VALUE", r#"{"path":VALUE,"access":"deny"}"#);
        let expected = "internally tagged enum PermissionPath";
        check::<SandboxContext>(&path, root, r#"["glob_pattern","*"]"#, expected);
        let special = path.replace("VALUE", r#"{"type":"special","value":VALUE}"#);
        let expected = "internally tagged enum SpecialPath";
        check::<SandboxContext>(&special, r#"{"kind":"root"}"#, r#"["root"]"#, expected);
    }

    #[test]
    fn members_of_a_start_are_not_read_from_arrays() {
        for (member, object, array, expected) in [
            ("limits", r#"{"memoryBytes":104857600}"#, "[104857600]", "struct ProcessLimits"),
            ("size", r#"{"rows":1,"cols":2}"#, "[1,2]", "struct WindowSize"),
            ("managedNetwork", r#"{"loopbackPorts":[1]}"#, "[[1],true]", "struct ManagedNetwork"),
            ("networkProxy", r#"{"proxy":{}}"#, r#"[{"enabled":true}]"#, "struct NetworkProxyLaunch"),
            (
                "networkProxy",
                r#"{"proxy":{},"auditMetadata":{}}"#,
                r#"{"proxy":[true]}"#,
                "struct NetworkProxyConfig",
            ),
            (
                "envPolicy",
                r#"{"inherit":"all","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#,
                r#"["all",true,[],{},[]]"#,
                "struct EnvPolicy",
            ),
            (
                "shellSnapshot",
                r#"{"scopeId":"s","shell":{"name":"sh","path":"/bin/sh"}}"#,
                r#"{"scopeId":"s","shell":["sh","/bin/sh"]}"#,
                "struct ShellInfo",
            ),
            (
                "shellSnapshot",
                r#"{"scopeId":"s","shell":{"name":"sh","path":"/bin/sh"}}"#,
                r#"["s",{"name":"sh","path":"/bin/sh"}]"#,
                "struct ShellSnapshot",
            ),
        ] {
            let params = format!(
                r#"{{"processId":"p","argv":["a"],"cwd":"file:///","env":{{}},"tty":false,"{member}":VALUE}}"#
            );
            check::<StartParams>(&params, object, array, expected);
        }
    }

    #[test]
    fn members_of_other_params_are_not_read_from_arrays() {
        let commit = r#"{"handleId":"h","mtime":VALUE}"#;
        check::<CommitParams>(commit, r#"{"secs":1,"nanos":2}"#, "[1,2]", "struct FileTime");
        let walk = r#"{"path":"file:///","options":VALUE}"#;
        let options = r#"{"maxDepth":1,"maxDirectories":1,"maxEntries":1,"followDirectorySymlinks":true}"#;
        check::<WalkParams>(walk, options, "[1,1,1,true]", "struct WalkOptions");
        let request = r#"{"method":"GET","url":"http://h","requestId":"r","headers":[VALUE]}"#;
        check::<HttpRequestParams>(request, r#"{"name":"a","value":"b"}"#, r#"["a","b"]"#, "struct HttpHeader");
        let root = r#"{"id":"r","path":"file:///"}"#;
        check::<DiscoverParams>(r#"{"roots":[VALUE]}"#, root, r#"["r","file:///"]"#, "struct CapabilityRoot");
        let part = r#"{"processId":"p","part":VALUE}"#;
        check::<ReadParams>(part, r#"{"seq":1,"offset":2}"#, "[1,2]", "struct ChunkPart");
        let verdict = r#"{"decision":VALUE}"#;
        let expected = "internally tagged enum NetworkPolicyVerdict";
        check::<NetworkPolicyResult>(verdict, r#"{"type":"allow"}"#, r#"["allow"]"#, expected);
    }

    #[test]
    fn members_that_stand_beside_others_are_still_found() {
        let resize: ResizeParams = decode(r#"{"processId":"p","rows":3,"new":[1],"cols":4}"#).unwrap();
        assert_eq!((resize.size.rows, resize.size.cols), (3, 4));
        assert_eq!(serde_json::to_string(&resize).unwrap(), r#"{"processId":"p","rows":3,"cols":4}"#);
    }
}
