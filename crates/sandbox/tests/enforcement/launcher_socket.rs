//! Unusual and malformed messages on the launcher's socket.

use std::io::{IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use sandbox::{ResidentSandbox, StartReply, StartRequest, plan_sandbox};

use crate::support::{Running, build, launcher_command, start_launcher, start_request, start_with};
use crate::yard::Yard;

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&u32::try_from(message.len()).unwrap().to_ne_bytes()[..], message].concat()
}

/// The process that was started. None if nothing was started: the answer says so, or there is none.
fn pid_of_reply(socket: &mut UnixStream) -> Option<Pid> {
    let mut length = [0; 4];
    socket.read_exact(&mut length).ok()?;
    let mut reply = vec![0; u32::from_ne_bytes(length) as usize];
    socket.read_exact(&mut reply).unwrap();
    // Before the answer comes the descriptor of the filter, with a message of one byte.
    if reply == [2] {
        return pid_of_reply(socket);
    }
    match StartReply::decode(&reply).unwrap() {
        StartReply::Started { pid } => Pid::from_raw(pid),
        StartReply::Failed { pid: Some(pid), .. } => {
            rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty()).unwrap();
            None
        }
        StartReply::Failed { .. } => None,
    }
}

#[test]
fn a_malformed_plan_ends_the_launcher() {
    for bytes in [
        Vec::new(),
        vec![1, 2],
        frame(&[]),
        frame(&[9, 9, 9]),
        frame(&[0xff; 100]),
        // A list that is longer than the message.
        frame(&[&[0, 0][..], &u64::MAX.to_ne_bytes()].concat()),
        // More than the largest message.
        u32::MAX.to_ne_bytes().to_vec(),
        // The message does not come.
        [&1000_u32.to_ne_bytes()[..], &[0; 10]].concat(),
    ] {
        let (mut launcher, socket) = start_launcher();
        UnixStream::from(socket).write_all(&bytes).unwrap();
        assert_eq!(launcher.wait().unwrap().code(), Some(1), "{bytes:?}");
    }
}

/// A sandbox whose socket the test keeps, with a command that runs in it.
fn sandbox_with_command(yard: &Yard) -> (OwnedFd, crate::support::TestSandbox, Running) {
    let planned = plan_sandbox(&yard.policy(), sandbox::SandboxNetwork::None).unwrap();
    let (launcher, socket) = start_launcher();
    let kept = socket.try_clone().unwrap();
    let resident = ResidentSandbox::build(socket, &planned.plan.clone().into()).unwrap();
    let sandbox =
        crate::support::TestSandbox { resident: Some(resident), launcher, placeholders: planned.placeholders };
    let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let running = sandbox.start(&["/bin/sleep", "1000"], Path::new("/"), &null).unwrap();
    (kept, sandbox, running)
}

fn valid_request() -> Vec<u8> {
    frame(&start_request(&["/bin/true"], Path::new("/")).encode())
}

#[test]
fn a_malformed_request_ends_the_launcher_and_its_commands() {
    let null = std::fs::File::open("/dev/null").unwrap();
    let no_program = StartRequest { candidates: Vec::new(), ..start_request(&["/bin/true"], Path::new("/")) };
    let no_argv = StartRequest { argv: Vec::new(), ..start_request(&["/bin/true"], Path::new("/")) };
    let low = StartRequest { extra_descriptor: Some(0), ..start_request(&["/bin/true"], Path::new("/")) };
    let high = StartRequest { extra_descriptor: Some(100_000), ..start_request(&["/bin/true"], Path::new("/")) };
    let four = vec![null.as_fd(); 4];
    for (bytes, descriptors) in [
        (frame(&[]), four.clone()),
        (frame(&[0xff; 64]), four.clone()),
        ([valid_request()[..8].to_vec(), vec![0xff; 500]].concat(), four.clone()),
        (u32::MAX.to_ne_bytes().to_vec(), Vec::new()),
        (valid_request(), Vec::new()),
        (valid_request(), vec![null.as_fd(); 3]),
        (valid_request(), vec![null.as_fd(); 5]),
        (valid_request(), vec![null.as_fd(); 8]),
        (frame(&no_program.encode()), four.clone()),
        (frame(&no_argv.encode()), four.clone()),
        (frame(&low.encode()), vec![null.as_fd(); 5]),
        (frame(&high.encode()), vec![null.as_fd(); 5]),
    ] {
        let yard = Yard::new();
        let (socket, mut sandbox, running) = sandbox_with_command(&yard);
        send(&socket, &bytes, &descriptors);
        assert_eq!(sandbox.launcher.wait().unwrap().code(), Some(1), "{bytes:?} with {}", descriptors.len());
        assert_eq!(running.wait(), 137);
        assert!(sandbox.resident().has_ended());
    }
}

#[test]
fn a_message_in_single_bytes_is_understood() {
    let yard = Yard::new();
    let (socket, sandbox, running) = sandbox_with_command(&yard);
    let null = std::fs::File::open("/dev/null").unwrap();
    let (ours, theirs) = crate::support::socket_pair();
    let request = valid_request();
    send(&socket, &request[..1], &[theirs.as_fd(), null.as_fd(), null.as_fd(), null.as_fd()]);
    for byte in &request[1..] {
        send(&socket, &[*byte], &[]);
    }
    drop(theirs);
    let pid = pid_of_reply(&mut UnixStream::from(ours)).unwrap();
    assert!(rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().is_some());
    drop(sandbox);
    assert_eq!(running.wait(), 137);
}

#[test]
fn a_launcher_without_free_descriptors_refuses_a_start_and_goes_on() {
    let yard = Yard::new();
    let planned = plan_sandbox(&yard.policy(), sandbox::SandboxNetwork::None).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -n 24; exec \"$0\""]).arg(launcher_command());
    let (launcher, socket) = start_with(command);
    let kept = socket.try_clone().unwrap();
    let resident = ResidentSandbox::build(socket, &planned.plan.clone().into()).unwrap();
    let sandbox =
        crate::support::TestSandbox { resident: Some(resident), launcher, placeholders: planned.placeholders };
    let null = std::fs::File::open("/dev/null").unwrap();
    // The descriptors of many requests at once do not fit.
    let replies: Vec<OwnedFd> = (0..40)
        .map(|_| {
            let (ours, theirs) = crate::support::socket_pair();
            send(&kept, &valid_request(), &[theirs.as_fd(), null.as_fd(), null.as_fd(), null.as_fd()]);
            ours
        })
        .collect();
    // Each request is answered, or its socket is closed. How many of them fit depends on how fast earlier ones end.
    for reply in replies {
        if let Some(pid) = pid_of_reply(&mut UnixStream::from(reply)) {
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        }
    }
    // The last threads may still close descriptors.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    let start = || {
        let (ours, theirs) = crate::support::socket_pair();
        let request = start_request(&["/bin/true"], Path::new("/"));
        sandbox.resident().start(&request, ours.as_fd(), theirs, &[null.as_fd(); 3])
    };
    let pid = loop {
        match start() {
            Ok(answer) => {
                if let StartReply::Started { pid } = answer.reply {
                    break pid;
                }
            }
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
        assert!(std::time::Instant::now() < deadline, "the launcher starts nothing any more");
    };
    rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty()).unwrap();
}

#[test]
fn a_plan_about_files_that_have_changed_is_refused() {
    let yard = Yard::new();
    let planned = plan_sandbox(&yard.policy(), sandbox::SandboxNetwork::None).unwrap();
    std::fs::rename(yard.path("ws/denied.txt"), yard.path("ws/moved")).unwrap();
    std::fs::write(yard.path("ws/denied.txt"), "").unwrap();
    let (mut launcher, socket) = start_launcher();
    let error = ResidentSandbox::build(socket, &planned.plan.clone().into()).unwrap_err();
    assert!(error.is_about_changed_files(), "{error}");
    assert_eq!(launcher.wait().unwrap().code(), Some(1));
    // A directory on the way that has become a link is not followed.
    let planned = plan_sandbox(&yard.policy(), sandbox::SandboxNetwork::None).unwrap();
    std::fs::rename(yard.path("ws/deep"), yard.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", yard.path("ws/deep")).unwrap();
    let (mut launcher, socket) = start_launcher();
    let error = ResidentSandbox::build(socket, &planned.plan.clone().into()).unwrap_err();
    assert!(error.is_about_changed_files(), "{error}");
    launcher.wait().unwrap();
    drop(planned);
    std::fs::remove_file(yard.path("ws/deep")).unwrap();
    std::fs::rename(yard.path("elsewhere"), yard.path("ws/deep")).unwrap();
    drop(build(&plan_sandbox(&yard.policy(), sandbox::SandboxNetwork::None).unwrap().plan));
}

#[test]
fn a_command_has_no_way_to_send_garbage_to_the_launcher() {
    // Writes to every descriptor but the standard streams, and to every descriptor of the processes that it is told. Without
    // a sandbox it must not be told any, because they do not belong to the test.
    let program = r#"
import os, socket, sys
garbage = b"garbage " * 16
for number in range(3, 1024):
    for send in (os.write, lambda number, data: socket.socket(fileno=os.dup(number)).send(data)):
        try:
            send(number, garbage)
            print("sent through", number)
        except OSError:
            pass
for process in sys.argv[1:]:
    for number in range(1024):
        try:
            os.write(os.open(f"/proc/{process}/fd/{number}", os.O_WRONLY | os.O_NONBLOCK), garbage)
            print("sent through", number, "of", process)
        except OSError:
            pass
"#;
    // Without a sandbox the program has a socket at the place of the launcher's socket, and finds it.
    let mut command = Command::new(crate::support::PYTHON);
    command.args(["-c", program]);
    let (mut unprotected, socket) = start_with(command);
    let mut received = [0; 8];
    UnixStream::from(socket).read_exact(&mut received).unwrap();
    assert_eq!(&received, b"garbage ", "without a sandbox");
    unprotected.wait().unwrap();

    let yard = Yard::new();
    let (_socket, sandbox, running) = sandbox_with_command(&yard);
    // The first process of the namespace, and a process of the host, which must not be visible.
    let launcher = sandbox.launcher.id().to_string();
    assert_eq!(sandbox.python(program, &["1", &launcher]).success(), "");
    assert_eq!(sandbox.run("echo works").success(), "works\n");
    assert!(!sandbox.resident().has_ended());
    drop(sandbox);
    assert_eq!(running.wait(), 137);
}
