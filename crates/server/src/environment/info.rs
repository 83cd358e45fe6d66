//! The answer to `environment/info`: shell, directories and capabilities of this machine. The shell is looked up when
//! the server starts, because directories of the `PATH` can be on a dead network mount and the request must not
//! block. The working directory is determined for each request, because it can be renamed or removed while the server
//! runs.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use protocol::{Capabilities, EnvironmentInfo, PathUri, ShellInfo};

use super::child_env::Variables;
use super::passwd;
use crate::config::Config;

/// Makes the answer from the environment variables of the server and the shell that [`users_shell`] has found.
/// The capabilities for sandboxes and port forwarding depend on the settings of the server.
pub(crate) fn environment_info(variables: &Variables, shell: &ShellInfo, config: &Config) -> EnvironmentInfo {
    let can_sandbox = config.sandbox_launcher.is_some();
    let cwd = std::env::current_dir().ok();
    let tmpdir = variables.get(OsStr::new("TMPDIR")).filter(|value| !value.is_empty());
    let tmpdir = tmpdir.map(|value| cwd.as_deref().unwrap_or(Path::new("")).join(value));
    let tmpdir_uri = tmpdir.as_deref().and_then(|path| PathUri::from_native(&without_dots(path)));
    let temp_dir = match tmpdir {
        Some(_) => tmpdir_uri.clone(),
        None => PathUri::from_native(Path::new("/tmp")),
    };
    EnvironmentInfo {
        shell: shell.clone(),
        cwd: cwd.as_deref().and_then(PathUri::from_native),
        temp_dir,
        temporary_directories: Some(tmpdir_uri.into_iter().collect()),
        capabilities: Capabilities {
            network_proxy_launch: can_sandbox,
            capability_discovery_sandbox: can_sandbox,
            environment_config_read: true,
            sandboxed_file_streaming: can_sandbox,
            sandbox_denials: can_sandbox,
            shell_snapshot_v2: true,
            process_resize: true,
            process_close_stdin: true,
            process_write_query: true,
            process_signals: true,
            process_list: true,
            process_timeout: true,
            process_limits: true,
            process_umask: true,
            read_gaps: true,
            read_parts: true,
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
            port_forward: config.forwards_ports,
        },
    }
}

/// The shell for commands of clients: if possible the login shell of the user as whom the server runs, otherwise
/// another one ([`choose_shell`]). May block.
pub(crate) fn users_shell(variables: &Variables) -> ShellInfo {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let login_shell = passwd_shell(&passwd, rustix::process::getuid().as_raw());
    choose_shell(login_shell.as_deref(), variables.get(OsStr::new("PATH")).map(|path| &**path))
}

/// Removes `.` and `..` without reading the file system.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// A kind of shell for which clients can write command lines.
struct ShellKind {
    /// The name of the kind in the protocol.
    name: &'static str,
    /// File names, without extension, of programs of this kind. Only the first is searched for on the `PATH`.
    programs: &'static [&'static str],
    /// Paths to try if the program is not on the `PATH`.
    usual_paths: &'static [&'static str],
}

const BASH: ShellKind = ShellKind { name: "bash", programs: &["bash"], usual_paths: &["/bin/bash", "/usr/bin/bash"] };
const ZSH: ShellKind = ShellKind { name: "zsh", programs: &["zsh"], usual_paths: &["/bin/zsh"] };
const SH: ShellKind = ShellKind { name: "sh", programs: &["sh"], usual_paths: &["/bin/sh"] };
const POWERSHELL: ShellKind =
    ShellKind { name: "powershell", programs: &["pwsh", "powershell"], usual_paths: &["/usr/local/bin/pwsh"] };
const CMD: ShellKind = ShellKind { name: "cmd", programs: &["cmd"], usual_paths: &[] };
const KINDS: [&ShellKind; 5] = [&BASH, &ZSH, &SH, &POWERSHELL, &CMD];

/// The login shell of the user, if its kind is known and the file exists. Otherwise a shell of the same kind. If
/// there is none, bash; if there is no bash, zsh; if there is no zsh, `/bin/sh`. `path_variable` is the value of
/// `PATH`.
fn choose_shell(login_shell: Option<&Path>, path_variable: Option<&OsStr>) -> ShellInfo {
    let login_kind = login_shell.and_then(|shell| {
        let program = shell.file_stem()?.to_str()?;
        KINDS.into_iter().find(|kind| kind.programs.contains(&program))
    });
    let of_login_kind = login_kind.and_then(|kind| {
        let itself = login_shell.filter(|path| path.is_absolute() && path.is_file()).map(Path::to_owned);
        Some((kind, itself.or_else(|| find(kind, path_variable))?))
    });
    let found =
        of_login_kind.or_else(|| [&BASH, &ZSH].into_iter().find_map(|kind| Some((kind, find(kind, path_variable)?))));
    match found {
        Some((kind, path)) => ShellInfo { name: kind.name.to_owned(), path: path.to_string_lossy().into_owned() },
        None => ShellInfo { name: SH.name.to_owned(), path: "/bin/sh".to_owned() },
    }
}

/// Finds a program of this kind: on the `PATH`, or at one of its usual paths. Relative directories of the `PATH` are skipped, because clients
/// have other working directories.
fn find(kind: &ShellKind, path_variable: Option<&OsStr>) -> Option<PathBuf> {
    let program = kind.programs.first()?;
    let directories = path_variable.map(std::env::split_paths).into_iter().flatten();
    let on_path = directories.filter(|directory| directory.is_absolute()).map(|directory| directory.join(program));
    on_path.chain(kind.usual_paths.iter().map(PathBuf::from)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0)
}

fn passwd_shell(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    passwd::field(passwd, uid, passwd::SHELL).map(|shell| PathBuf::from(OsStr::from_bytes(shell)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn uri(path: &Path) -> PathUri {
        PathUri::from_native(path).unwrap()
    }

    fn sh() -> ShellInfo {
        ShellInfo { name: "sh".into(), path: "/bin/sh".into() }
    }

    #[test]
    fn only_tmpdir_is_reported_and_it_is_resolved_against_the_cwd() {
        let cwd = std::env::current_dir().unwrap();
        let directories = |tmpdir: &str| {
            let info =
                environment_info(&Variables::from([("TMPDIR".into(), tmpdir.into())]), &sh(), &Config::default());
            (info.temporary_directories.unwrap(), info.temp_dir.unwrap())
        };
        for (tmpdir, expected) in [
            ("scratch", cwd.join("scratch")),
            ("rel/../x", cwd.join("x")),
            ("/tmp/../var/tmp/", "/var/tmp".into()),
            ("/../..", "/".into()),
            ("/a//./b", "/a/b".into()),
        ] {
            assert_eq!(directories(tmpdir), (vec![uri(&expected)], uri(&expected)), "{tmpdir}");
        }
        assert_eq!(directories(""), (vec![], uri(Path::new("/tmp"))));
        let others = Variables::from([("TMP".into(), "/a".into()), ("TEMP".into(), "/b".into())]);
        let info = environment_info(&others, &sh(), &Config::default());
        assert_eq!((info.temporary_directories, info.temp_dir), (Some(vec![]), Some(uri(Path::new("/tmp")))));
        assert_eq!(info.cwd, Some(uri(&cwd)));
    }

    #[test]
    fn the_login_shell_comes_from_the_passwd_entry() {
        let passwd = b"root:x:0:0:root:/root:/bin/sh\nann:x:1000:1000::/srv/ann:/usr/bin/fish\nno:x:7:7::/:\n";
        assert_eq!(passwd_shell(passwd, 0), Some("/bin/sh".into()));
        assert_eq!(passwd_shell(passwd, 1000), Some("/usr/bin/fish".into()));
        assert_eq!((passwd_shell(passwd, 7), passwd_shell(passwd, 5)), (None, None));
    }

    #[test]
    fn the_login_shell_is_chosen_or_else_one_of_its_kind_or_else_bash() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let program = |name: &str, mode| {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), "").unwrap();
            std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for name in ["bin/bash", "bin/zsh", "bin/pwsh", "users/zsh.real"] {
            program(name, 0o755);
        }
        program("not-executable/bash", 0o644);
        std::fs::create_dir_all(at("a-directory/bash")).unwrap();
        let path = std::env::join_paths(
            ["relative", "", "a-directory", "not-executable", "bin"]
                .map(|name| if matches!(name, "relative" | "") { name.into() } else { at(name) }),
        )
        .unwrap();
        let chosen = |login_shell: Option<&str>| {
            let info = choose_shell(login_shell.map(Path::new), Some(&path));
            (info.name, PathBuf::from(info.path))
        };
        let login_shell = at("users/zsh.real");
        assert_eq!(chosen(login_shell.to_str()), ("zsh".into(), login_shell.clone()), "the extension does not count");
        assert_eq!(chosen(Some("/nonexistent/zsh")), ("zsh".into(), at("bin/zsh")));
        assert_eq!(chosen(Some("/nonexistent/powershell")), ("powershell".into(), at("bin/pwsh")));
        for other in [Some("/usr/bin/fish"), Some("/usr/sbin/nologin"), Some("/nonexistent/cmd"), None] {
            assert_eq!(chosen(other), ("bash".into(), at("bin/bash")), "{other:?}");
        }
        let without_path = choose_shell(Some(Path::new("/nonexistent/sh")), None);
        assert_eq!((without_path.name.as_str(), without_path.path.as_str()), ("sh", "/bin/sh"));
    }
}
