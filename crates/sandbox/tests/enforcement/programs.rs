//! Ordinary programs work in a sandbox.

use std::path::Path;

use sandbox::{Access, SandboxNetwork};

use crate::support::{TestSandbox, policy, root, sandbox_for, workspace_sandbox};

fn read_only() -> TestSandbox {
    sandbox_for(&policy(vec![root(Access::Read)]), SandboxNetwork::None)
}

#[track_caller]
fn script(sandbox: &TestSandbox, folder: &Path, script: &str) -> String {
    let outcome = sandbox.run_argv(&["/bin/bash", "-c", &format!("set -e; export HOME=$PWD; {script}")], folder);
    assert_eq!(outcome.code, 0, "{script}: {}", outcome.output);
    outcome.output
}

#[test]
fn python_with_asyncio_subprocesses_and_threads() {
    let program = r#"
import asyncio, subprocess, time
async def main():
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=subprocess.PIPE)
    print((await process.communicate())[0].decode().strip())
    loop = asyncio.get_running_loop()
    print(await loop.run_in_executor(None, lambda: sum(range(10))))
    reader = asyncio.create_subprocess_shell("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process = await reader
    print((await process.communicate(b"piped"))[0])
asyncio.run(main())
"#;
    assert_eq!(read_only().python(program, &[]).success(), "child\n45\nb'piped'\n");
}

#[test]
fn python_with_processes_shared_memory_and_semaphores() {
    let program = r#"
import multiprocessing as mp
from multiprocessing import shared_memory
def double(number):
    return 2 * number
def add(counter, lock):
    for _ in range(100):
        with lock:
            counter.value += 1
if __name__ == "__main__":
    with mp.Pool(3) as pool:
        print(pool.map(double, range(4)))
    counter, lock = mp.Value("i", 0, lock=False), mp.Lock()
    workers = [mp.Process(target=add, args=(counter, lock)) for _ in range(3)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    print(counter.value)
    block = shared_memory.SharedMemory(create=True, size=4096)
    block.buf[:5] = b"hello"
    again = shared_memory.SharedMemory(block.name)
    print(bytes(again.buf[:5]))
    again.close(); block.close(); block.unlink()
    queue = mp.Queue()
    queue.put(1)
    print(queue.get())
"#;
    assert_eq!(read_only().python(program, &[]).success(), "[0, 2, 4, 6]\n300\nb'hello'\n1\n");
}

#[test]
fn node_with_child_processes() {
    assert!(Path::new("/usr/bin/node").exists(), "install nodejs");
    let program = r#"
const { execSync, spawn, fork } = require("child_process");
console.log(execSync("echo sync").toString().trim());
const child = spawn("cat");
child.stdout.on("data", data => console.log(data.toString().trim()));
child.stdin.end("spawned\n");
child.on("close", code => {
    console.log("code", code);
    require("fs").promises.readFile("/etc/hostname").then(() => console.log("read"), error => console.log(error.code));
});
"#;
    let outcome = read_only().run_argv(&["/usr/bin/node", "-e", program], Path::new("/"));
    let output = outcome.success();
    assert!(output.starts_with("sync\nspawned\ncode 0\n"), "{output}");
}

#[test]
fn git_make_and_a_compiler_in_a_workspace() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = workspace_sandbox(directory.path());
    // The `.git` of the workspace itself is protected, that of a directory in it is not.
    let git = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; PATH=$PATH:/usr/local/bin
git init -q repository; cd repository; echo text > file; git add file; git commit -qm first; cd ..
git clone -q repository copy; cd copy; git log --format=%s; git status --short; git switch -qc branch; echo more >> file; git diff --stat | tail -1";
    assert_eq!(script(&sandbox, directory.path(), git), "first\n 1 file changed, 1 insertion(+)\n");
    let outcome = sandbox.run_argv(&["/bin/sh", "-c", "PATH=$PATH:/usr/local/bin git init -q ."], directory.path());
    assert_ne!(outcome.code, 0, "{}", outcome.output);
    let build = r#"
export TMPDIR=$PWD
printf 'int twice(int x) { return 2 * x; }\n' > a.c
printf '#include <stdio.h>\nint twice(int);\nint main(void) { printf("%%d\\n", twice(21)); return 0; }\n' > b.c
printf 'program: a.o b.o\n\tcc -o $@ $^\n%%.o: %%.c\n\tcc -c $<\n' > Makefile
if command -v make > /dev/null; then make -s -j4; else cc -o program a.c b.c; fi
./program"#;
    assert_eq!(script(&sandbox, directory.path(), build), "42\n");
}

#[test]
fn git_finds_a_repository_above_the_workspace() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().canonicalize().unwrap();
    let workspace = base.join("sub");
    std::fs::create_dir(&workspace).unwrap();
    let made = std::process::Command::new("git").args(["init", "-q"]).current_dir(&base).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let sandbox = workspace_sandbox(&workspace);
    let find = "PATH=$PATH:/usr/local/bin; git rev-parse --show-toplevel; git rev-parse --show-prefix";
    assert_eq!(script(&sandbox, &workspace, find), format!("{}\nsub/\n", base.display()));
    // The repository is outside of the workspace, so it can only be read.
    let change = "PATH=$PATH:/usr/local/bin; git config user.name changed";
    let outcome = sandbox.run_argv(&["/bin/bash", "-c", change], &workspace);
    assert_ne!(outcome.code, 0, "{}", outcome.output);
}

#[test]
fn shells_perl_pipelines_job_control_and_sorting_with_files() {
    let directory = tempfile::tempdir().unwrap();
    let sandbox = workspace_sandbox(directory.path());
    let here = directory.path();
    assert_eq!(script(&sandbox, here, "seq 5 | sort -r | sort -n | head -2 | tr '\\n' ' '"), "1 2 ");
    assert_eq!(script(&sandbox, here, "diff <(echo a) <(echo a) && cat <<< here"), "here\n");
    let jobs =
        "set -m; sleep 1000 & kill -STOP %1; jobs -r | wc -l; kill -CONT %1; kill %1; wait %1 || echo ended $?";
    assert!(script(&sandbox, here, jobs).contains("ended 143"));
    assert_eq!(
        script(&sandbox, here, "perl -e 'my $pid = fork; if (!$pid) { exit 3 } waitpid($pid, 0); print $? >> 8'"),
        "3"
    );
    let sorted = "export TMPDIR=$PWD; seq 200000 | sort -R --random-source=/dev/zero -S 100k | sort -n -S 100k | tail -1; ls -A | grep -c sort || true";
    assert_eq!(script(&sandbox, here, sorted), "200000\n0\n");
    assert_eq!(
        script(&sandbox, here, "echo x > /dev/stderr; echo y | cat - /dev/stdin <<< z > /dev/null; : > /dev/null"),
        "x\n"
    );
    assert_eq!(script(&sandbox, here, "mkfifo pipe; (echo through > pipe) & cat pipe; wait"), "through\n");
    assert_eq!(
        script(
            &sandbox,
            here,
            "timeout 5 true; nice true; ( ulimit -n 64; ulimit -n ); nproc > /dev/null; ps > /dev/null || true"
        ),
        "64\n"
    );
}

#[test]
fn descriptors_limits_and_the_mask_of_a_request_are_applied() {
    use std::io::{Read as _, Write as _};
    use std::os::fd::{AsFd as _, OwnedFd};
    let directory = tempfile::tempdir().unwrap();
    let sandbox = workspace_sandbox(directory.path());
    let (reader, writer) = std::io::pipe().unwrap();
    let (extra, mut sender) = std::io::pipe().unwrap();
    sender.write_all(b"extra").unwrap();
    drop(sender);
    let (writer, extra) = (OwnedFd::from(writer), OwnedFd::from(extra));
    let null = std::fs::File::open("/dev/null").unwrap();
    let argv = ["/bin/bash", "-c", "cat <&7; echo; umask; ulimit -n; ls /proc/self/fd | tr '\\n' ' '"];
    let mut request = crate::support::start_request(&argv, directory.path());
    request.extra_descriptor = Some(7);
    request.umask = Some(0o027);
    request.limits = vec![(libc::RLIMIT_NOFILE, 100, 100)];
    let descriptors = [null.as_fd(), writer.as_fd(), writer.as_fd(), extra.as_fd()];
    let running = sandbox.start_request(&request, &descriptors).unwrap();
    drop((writer, extra));
    let mut output = String::new();
    { reader }.read_to_string(&mut output).unwrap();
    assert_eq!(running.wait(), 0);
    assert_eq!(output, "extra\n0027\n100\n0 1 2 3 7 ");
}
