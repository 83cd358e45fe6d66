//! Tests a server that runs inside the process of another program, the host. The host also does other work, such as
//! starting children of its own. The server changes no setting of the whole process, and leaves the children of the
//! host alone while it starts, kills and reaps its own.
#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper function fails the test")]

use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use exec_server::{
    ExecParams, ExecServerClient, HostProcess, Listen, RemoteExecServerConnectArgs, Server, ServerConfig,
};
use rustix::io::FdFlags;
use testkit::{Signal, is_alive, send_signal};

/// Starts a server in this process and connects to it.
async fn serve(directory: &Path) -> (Server, ExecServerClient) {
    let url = format!("unix://{}/exec.sock", directory.display());
    let listen = Listen {
        urls: vec![url.parse().unwrap()],
        tls: None,
        tokens: None,
        insecure_no_auth: false,
        allowed_hosts: Vec::new(),
    };
    let server = Server::new(ServerConfig::default(), HostProcess::shared()).unwrap();
    server.listen(listen).await.unwrap();
    let args = RemoteExecServerConnectArgs::new(&url, "host");
    (server, ExecServerClient::connect_websocket(args).await.unwrap())
}

fn command(id: &str, argv: &[&str]) -> ExecParams {
    ExecParams::new(id, argv.iter().copied(), "file:///".parse().unwrap())
}

/// Settings of this process that a server could change.
#[derive(Debug, PartialEq)]
struct ProcessSettings {
    limits: String,
    /// The umask, and the signals that are ignored, caught or blocked.
    status: Vec<String>,
    is_subreaper: bool,
    /// The flags of the descriptor that is given to [`Self::read`].
    descriptor_flags: FdFlags,
}

impl ProcessSettings {
    fn read(descriptor: &File) -> Self {
        // The status of this thread: the main thread blocks all signals for a moment while it creates a thread.
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let compared = ["Umask:", "SigBlk:", "SigIgn:", "SigCgt:"];
        Self {
            limits: fs::read_to_string("/proc/self/limits").unwrap(),
            status: status
                .lines()
                .filter(|line| compared.iter().any(|name| line.starts_with(name)))
                .map(str::to_owned)
                .collect(),
            is_subreaper: rustix::process::child_subreaper().unwrap().is_some(),
            descriptor_flags: rustix::io::fcntl_getfd(descriptor).unwrap(),
        }
    }
}

#[tokio::test]
async fn a_server_changes_no_setting_of_its_host_and_its_processes_inherit_no_descriptor() {
    let directory = tempfile::tempdir().unwrap();
    let inheritable = File::open("/").unwrap();
    rustix::io::fcntl_setfd(&inheritable, FdFlags::empty()).unwrap();
    let before = ProcessSettings::read(&inheritable);

    let (server, client) = serve(directory.path()).await;
    let listing = client.start(command("list", &["ls", "/proc/self/fd"])).await.unwrap();
    let listed = listing.wait_with_output().await.unwrap().stdout;
    // `ls` itself opens descriptor 3 to read the directory. An inherited descriptor would be one more line.
    assert_eq!(String::from_utf8(listed).unwrap(), "0\n1\n2\n3\n");
    assert!(inheritable.as_raw_fd() > 2);
    assert_eq!(ProcessSettings::read(&inheritable), before);
    client.close().await;
    server.shut_down().await;
    assert_eq!(ProcessSettings::read(&inheritable), before);
}

/// Processes that the host itself has started. Dropping the value kills them.
#[derive(Default)]
struct HostChildren {
    /// Children that run until they are killed.
    running: Vec<Child>,
    /// Children that exit with code 7 at once.
    exiting: Vec<Child>,
    /// Process ids of processes whose parent has ended.
    orphans: Vec<u32>,
}

impl HostChildren {
    /// Starts children in the Unix session of the host, children that lead a Unix session of their own, and an orphan that leads one.
    fn start_some(&mut self) {
        self.running.push(Command::new("sleep").arg("1000").spawn().unwrap());
        self.running.push(Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap());
        self.exiting.push(Command::new("sh").args(["-c", "exit 7"]).spawn().unwrap());
        self.exiting.push(Command::new("setsid").args(["sh", "-c", "exit 7"]).spawn().unwrap());
        let script = "setsid sleep 1000 >/dev/null 2>&1 & echo $!";
        let daemon = Command::new("sh").args(["-c", script]).stdout(Stdio::piped()).output().unwrap();
        self.orphans.push(String::from_utf8(daemon.stdout).unwrap().trim().parse().unwrap());
    }

    /// The processes that run until they are killed.
    fn long_running_pids(&self) -> Vec<u32> {
        self.running.iter().map(Child::id).chain(self.orphans.iter().copied()).collect()
    }
}

impl Drop for HostChildren {
    fn drop(&mut self) {
        for child in self.running.iter_mut().chain(&mut self.exiting) {
            let _ignored = child.kill();
            let _ignored = child.wait();
        }
        for orphan in self.orphans.iter().filter(|pid| is_alive(**pid)) {
            send_signal(*orphan, Signal::KILL);
        }
    }
}

/// The resource limit in which a server stores the tag of its processes, which is the number by which it finds them.
fn realtime_limit(pid: u32) -> String {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    limits.lines().find(|line| line.starts_with("Max realtime timeout")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_leaves_the_children_of_its_host_alone() {
    const ROUNDS: usize = 12;
    const PROCESSES_AT_ONCE: usize = 8;
    const MAX_ORPHANS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let (server, client) = serve(directory.path()).await;
    let is_done = AtomicBool::new(false);
    let mut children = std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let mut children = HostChildren::default();
            while !is_done.load(Ordering::Relaxed) && children.orphans.len() < MAX_ORPHANS {
                children.start_some();
            }
            children
        });
        let client_work = async {
            for round in 0..ROUNDS {
                let mut processes = Vec::new();
                for number in 0..PROCESSES_AT_ONCE {
                    let tree = command(&format!("{round}-{number}"), &["sh", "-c", "setsid sleep 1000 & sleep 1000"]);
                    processes.push(client.start(tree).await.unwrap());
                }
                if round % 2 == 0 {
                    server.kill_everything().await;
                }
                for process in processes {
                    process.terminate().await.unwrap();
                }
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(client_work));
        is_done.store(true, Ordering::Relaxed);
        host.join().unwrap()
    });
    client.close().await;
    server.shut_down().await;

    let own_limit = realtime_limit(std::process::id());
    for pid in children.long_running_pids() {
        assert!(is_alive(pid), "the server killed {pid}, which belongs to the host");
        assert_eq!(realtime_limit(pid), own_limit, "the server has tagged {pid}, which belongs to the host");
    }
    for child in &mut children.exiting {
        assert_eq!(child.wait().unwrap().code(), Some(7), "the host gets the exit status of its child");
    }
    for child in &mut children.running {
        assert_eq!(child.try_wait().unwrap(), None);
    }
}
