//! Filters of system calls that a command installs itself.

use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use sandbox::{StartAnswer, StartReply};

use crate::support::{PYTHON, Running, socket_pair, start_request};
use crate::yard::Yard;

/// Installs a filter that allows every call and asks nobody, and then one that asks the process that has its descriptor. Such
/// a filter, with another verdict, could allow what the filter of the sandbox refuses.
const PROGRAM: &str = r#"
import ctypes, errno, platform, struct
libc = ctypes.CDLL(None, use_errno=True)
SECCOMP = 317 if platform.machine() == "x86_64" else 277
ALLOW = 0x7fff0000
steps = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, ALLOW), 8)
filter = struct.pack("HxxxxxxP", 1, ctypes.addressof(steps))
libc.prctl(38, 1, 0, 0, 0)
for flags in (0, 8):
    done = libc.syscall(SECCOMP, 1, flags, filter)
    print("installed" if done >= 0 else errno.errorcode[ctypes.get_errno()])
"#;

#[test]
fn a_command_cannot_install_a_filter_that_asks_its_own_processes() {
    let outside = std::process::Command::new(PYTHON).args(["-c", PROGRAM]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "installed\ninstalled\n");

    let yard = Yard::new();
    let sandbox = yard.sandbox();
    assert_eq!(sandbox.python(PROGRAM, &[]).output, "installed\nEPERM\n");

    // The same if the server closes the descriptor of the sandbox's filter at once.
    let (mut reader, writer) = std::io::pipe().unwrap();
    let writer = OwnedFd::from(writer);
    let null = std::fs::File::open("/dev/null").unwrap();
    let (ours, theirs) = socket_pair();
    let request = start_request(&[PYTHON, "-c", PROGRAM], Path::new("/"));
    let streams = [null.as_fd(), writer.as_fd(), writer.as_fd()];
    let StartAnswer { reply, lifeline, filter } =
        sandbox.resident().start(&request, ours.as_fd(), theirs, &streams).unwrap();
    drop((filter, writer));
    let StartReply::Started { pid } = reply else { panic!("{reply:?}") };
    let mut output = String::new();
    reader.read_to_string(&mut output).unwrap();
    Running { pid, _lifeline: lifeline }.wait();
    assert_eq!(output, "installed\nEPERM\n");
}
