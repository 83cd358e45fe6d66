//! `environment/info`: computed when the server starts, because none of it changes afterwards.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use protocol::{Capabilities, EnvironmentInfo, PathUri, ShellInfo};

use super::child_env::Variables;
use super::passwd;

/// Looks the environment up.
pub(crate) fn environment_info(variables: &Variables) -> EnvironmentInfo {
    let cwd = std::env::current_dir().ok();
    let tmpdir = variables.get(OsStr::new("TMPDIR")).filter(|value| !value.is_empty()).map(PathBuf::from);
    let tmpdir = tmpdir.and_then(|path| match &cwd {
        Some(cwd) => Some(cwd.join(path)),
        None => path.is_absolute().then_some(path),
    });
    let temporary_directory = tmpdir.as_deref().and_then(PathUri::from_native);
    EnvironmentInfo {
        shell: shell(variables),
        cwd: cwd.as_deref().and_then(PathUri::from_native),
        temp_dir: temporary_directory.clone().or_else(|| PathUri::from_native(Path::new("/tmp"))),
        temporary_directories: temporary_directory.map(|uri| vec![uri]),
        capabilities: Capabilities {
            environment_config_read: true,
            shell_snapshot_v2: true,
            process_resize: true,
            process_close_stdin: true,
            process_write_query: true,
            process_signals: true,
            process_list: true,
            process_timeout: true,
            read_gaps: true,
            session_keep: true,
            session_observe: true,
            process_flow: true,
            fs_rename: true,
            fs_write_blocks: true,
            fs_mode_if_new: true,
            fs_extents: true,
            fs_set_metadata: true,
            fs_links: true,
            fs_watch: true,
            fs_search: true,
            http_header_env_vars: true,
            http_cancel: true,
            http_limits: true,
            ..Capabilities::default()
        },
    }
}

/// The user's shell, else the first usable one on the PATH, else `/bin/sh`.
fn shell(variables: &Variables) -> ShellInfo {
    let from_passwd =
        passwd_shell(&std::fs::read("/etc/passwd").unwrap_or_default(), rustix::process::getuid().as_raw());
    let path = variables.get(OsStr::new("PATH")).cloned().unwrap_or_else(|| "/usr/bin:/bin".into());
    let on_path = ["bash", "zsh", "sh"]
        .into_iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |dir| dir.join(name)).collect::<Vec<_>>());
    from_passwd
        .into_iter()
        .chain(on_path)
        .find_map(|path| known_shell(&path))
        .unwrap_or(ShellInfo { name: "sh".into(), path: "/bin/sh".into() })
}

/// A shell whose command line a client knows how to write.
fn known_shell(path: &Path) -> Option<ShellInfo> {
    let name = path.file_name()?.to_str()?;
    let known = ["zsh", "bash", "sh"].contains(&name) && path.is_absolute() && path.is_file();
    known.then(|| ShellInfo { name: name.to_owned(), path: path.to_string_lossy().into_owned() })
}

fn passwd_shell(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    passwd::field(passwd, uid, passwd::SHELL).map(|shell| PathBuf::from(OsStr::from_bytes(shell)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(path: &Path) -> PathUri {
        PathUri::from_native(path).unwrap()
    }

    #[test]
    fn tmpdir_is_reported_and_resolved_against_the_cwd() {
        let cwd = std::env::current_dir().unwrap();
        let info = environment_info(&Variables::from([("TMPDIR".into(), "scratch".into())]));
        assert_eq!(info.temporary_directories, Some(vec![uri(&cwd.join("scratch"))]));
        assert_eq!(info.temp_dir, Some(uri(&cwd.join("scratch"))));
        let info = environment_info(&Variables::from([("TMPDIR".into(), "".into())]));
        assert_eq!((info.temporary_directories, info.temp_dir), (None, Some(uri(Path::new("/tmp")))));
        assert_eq!(info.cwd, Some(uri(&cwd)));
    }

    #[test]
    fn the_shell_comes_from_the_passwd_entry() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/srv/ann:/usr/bin/fish\n";
        assert_eq!(passwd_shell(passwd, 0), Some("/bin/sh".into()));
        assert_eq!(passwd_shell(passwd, 1000), Some("/usr/bin/fish".into()));
        assert_eq!(passwd_shell(passwd, 5), None);
        assert_eq!(known_shell(Path::new("/usr/bin/fish")), None, "a shell clients cannot drive is passed over");
        assert_eq!(known_shell(Path::new("/bin/sh")).unwrap().name, "sh");
    }
}
