//! The protobuf types of `proto/relay.proto`. `generated.rs` is made by prost; the test below makes it again and compares.

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated code")]
mod generated;

pub(crate) use generated::*;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    /// Set `WRITE_RELAY_FRAMES=1` to write the file instead of comparing it.
    #[test]
    fn the_generated_code_is_that_of_the_proto_file() {
        if Command::new("protoc").arg("--version").output().is_err() {
            return;
        }
        let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let out = tempfile::tempdir().unwrap();
        let mut config = prost_build::Config::new();
        config.out_dir(out.path()).bytes(["."]);
        config.compile_protos(&[crate_root.join("proto/relay.proto")], &[crate_root.join("proto")]).unwrap();
        let generated = std::fs::read_to_string(out.path().join("codex.exec_server.relay.v1.rs")).unwrap();
        let checked_in = crate_root.join("src/wire/generated.rs");
        if std::env::var_os("WRITE_RELAY_FRAMES").is_some() {
            std::fs::write(&checked_in, &generated).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&checked_in).unwrap(), generated);
    }
}
