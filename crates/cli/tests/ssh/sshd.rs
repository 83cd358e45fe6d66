//! Starts a real sshd on loopback. It accepts the user who runs the tests, with a key that is made for the test.

use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command as BlockingCommand, Stdio};

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The host name that the configuration file of ssh has for the sshd.
pub(crate) const HOST: &str = "elsewhere";

/// Number of free ports that are tried. Another program may take a port before sshd listens on it.
const ATTEMPTS: usize = 10;

/// A running sshd. Dropping it kills sshd.
pub(crate) struct Sshd {
    folder: TempDir,
    _child: Child,
}

impl Sshd {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for key in ["host_key", "user_key", "other_key"] {
            make_key(&path(key));
        }
        std::fs::copy(path("user_key.pub"), path("authorized_keys")).unwrap();
        std::fs::create_dir(path("temporary")).unwrap();
        for _ in 0..ATTEMPTS {
            let port = free_port();
            write_config(folder.path(), port, "host_key");
            if let Some(child) = spawn(folder.path()).await {
                return Self { folder, _child: child };
            }
        }
        panic!("sshd does not start on any port");
    }

    /// The configuration file of the ssh client, for `ssh -F`.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("config")
    }

    /// The value of TMPDIR for commands that come in through this sshd.
    pub(crate) fn temporary_directory(&self) -> PathBuf {
        self.folder.path().join("temporary")
    }

    /// From now on ssh expects a host key that sshd does not have.
    pub(crate) fn expect_another_host_key(&self) {
        let known = self.folder.path().join("known_hosts");
        let text = std::fs::read_to_string(&known).unwrap();
        let other = std::fs::read_to_string(self.folder.path().join("other_key.pub")).unwrap();
        let host = text.split_whitespace().next().unwrap();
        std::fs::write(&known, format!("{host} {other}")).unwrap();
    }

    /// From now on ssh connects to a port on which no program listens.
    pub(crate) fn point_ssh_at_unused_port(&self) {
        let config = std::fs::read_to_string(self.config()).unwrap();
        let port = config.lines().find_map(|line| line.strip_prefix("  Port ")).unwrap();
        // Only root can listen on port 1, and usually no program does.
        std::fs::write(self.config(), config.replace(&format!("  Port {port}\n"), "  Port 1\n")).unwrap();
    }
}

fn make_key(path: &Path) {
    let mut keygen = BlockingCommand::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path);
    assert!(keygen.status().expect("install openssh-client").success());
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes `sshd_config`, and for the ssh client `known_hosts` and `config`. `host_key` is the name of a key file in
/// the folder.
fn write_config(folder: &Path, port: u16, host_key: &str) {
    let path = |name: &str| folder.join(name).display().to_string();
    let server = format!(
        "ListenAddress 127.0.0.1:{port}
HostKey {}
PidFile none
AuthorizedKeysFile {}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
SetEnv TMPDIR={}
",
        path(host_key),
        path("authorized_keys"),
        path("temporary"),
    );
    std::fs::write(folder.join("sshd_config"), server).unwrap();
    let key = std::fs::read_to_string(folder.join(format!("{host_key}.pub"))).unwrap();
    std::fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{port} {key}")).unwrap();
    let mut client = format!("Host {HOST}\n  HostName 127.0.0.1\n  Port {port}\n");
    let options = [
        ("IdentityFile", path("user_key")),
        ("UserKnownHostsFile", path("known_hosts")),
        ("GlobalKnownHostsFile", "none".to_owned()),
        ("IdentitiesOnly", "yes".to_owned()),
        ("IdentityAgent", "none".to_owned()),
        ("StrictHostKeyChecking", "yes".to_owned()),
        ("LogLevel", "ERROR".to_owned()),
    ];
    options.iter().for_each(|(name, value)| writeln!(client, "  {name} {value}").unwrap());
    std::fs::write(folder.join("config"), client).unwrap();
}

/// The absolute path of sshd. sshd refuses to start under a relative path, and is not on the `PATH` of every user.
fn sshd_program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join("sshd")).find(|sshd| sshd.is_file()).expect("install openssh-server")
}

/// Starts sshd. `None` if another program has taken the port.
async fn spawn(folder: &Path) -> Option<Child> {
    // If root runs the tests, sshd needs this directory for privilege separation. Other users cannot create the
    // directory and do not need it.
    let _ignored = std::fs::create_dir_all("/run/sshd");
    let mut command = Command::new(sshd_program());
    command.args(["-D", "-e", "-f"]).arg(folder.join("sshd_config"));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut stderr = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.starts_with("Server listening") {
            // Later output is read and dropped, so that sshd does not block.
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Some(child);
        }
        stderr.extend([line.as_str(), "\n"]);
    }
    assert!(stderr.contains("Address already in use"), "sshd does not start: {stderr}");
    None
}
