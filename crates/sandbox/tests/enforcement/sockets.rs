//! Attempts to reach sockets outside the sandbox.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};

use sandbox::{Access, SandboxNetwork};

use crate::support::{TestSandbox, entry, policy, root, sandbox_for};
use crate::yard::{
    Goal, REFUSED, Yard, attack, attack_in, attack_needing_root, attack_only_in_sandbox, python_outside,
};

fn sandbox_with(network: SandboxNetwork) -> impl Fn(&Yard) -> TestSandbox {
    move |yard| sandbox_for(&policy(vec![root(Access::Read), entry(yard.path("ws"), Access::Write)]), network)
}

#[test]
fn unix_sockets_outside_cannot_be_reached() {
    for network in [SandboxNetwork::None, SandboxNetwork::Host, SandboxNetwork::LoopbackOnly] {
        let yard = Yard::new();
        let path = yard.path("outside/stream.socket");
        let stream = UnixListener::bind(&path).unwrap();
        stream.set_nonblocking(true).unwrap();
        let datagram = UnixDatagram::bind(yard.path("outside/datagram.socket")).unwrap();
        datagram.set_nonblocking(true).unwrap();
        let in_workspace = UnixDatagram::bind(yard.path("ws/datagram.socket")).unwrap();
        in_workspace.set_nonblocking(true).unwrap();
        let sandbox = sandbox_with(network)(&yard);
        let program = r#"
import os, socket, sys
base = sys.argv[1]
targets = [base + "/outside/stream.socket", base + "/outside/datagram.socket", base + "/ws/datagram.socket"]
def attempt(name, action):
    try:
        action()
        print("succeeded:", name)
    except OSError:
        pass
# The kernel makes a datagram socket of a raw one.
kinds = [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET]
for kind in kinds:
    for target in targets:
        for make in (lambda: socket.socket(socket.AF_UNIX, kind), lambda: socket.socketpair(socket.AF_UNIX, kind)[0]):
            try:
                made = make()
            except OSError:
                continue
            attempt(f"connect {int(kind)} {target}", lambda: made.connect(target))
            attempt(f"sendto {int(kind)} {target}", lambda: made.sendto(b"x", target))
            attempt(f"sendmsg {int(kind)} {target}", lambda: made.sendmsg([b"x"], [], 0, target))
            made.close()
"#;
        let run = std::process::Command::new(crate::support::PYTHON)
            .args(["-c", program])
            .arg(yard.base())
            .output()
            .unwrap();
        let unprotected = String::from_utf8_lossy(&run.stdout);
        for expected in ["connect 1 ", "sendto 2 ", "sendmsg 2 ", "sendto 3 "] {
            assert!(unprotected.contains(expected), "{unprotected}");
        }
        while stream.accept().is_ok() {}
        while datagram.recv(&mut [0; 8]).is_ok() {}
        while in_workspace.recv(&mut [0; 8]).is_ok() {}
        let outcome = sandbox.python(program, &[yard.base().to_str().unwrap()]);
        assert_eq!(outcome.success(), "", "{network:?}");
        assert!(stream.accept().is_err() && datagram.recv(&mut [0; 8]).is_err());
        assert!(in_workspace.recv(&mut [0; 8]).is_err());
    }
}

/// The program listens itself, so the attack does not depend on what else runs on the machine.
#[test]
fn abstract_unix_sockets_of_a_command_cannot_be_connected_to() {
    let program = "listener = socket.socket(socket.AF_UNIX); listener.bind(chr(0) + 'x%d' % os.getpid()); listener.listen()\n\
                   socket.socket(socket.AF_UNIX).connect(chr(0) + 'x%d' % os.getpid())";
    for network in [SandboxNetwork::None, SandboxNetwork::Host, SandboxNetwork::LoopbackOnly] {
        attack_in(&format!("{network:?}"), Goal::Exit, program, sandbox_with(network));
    }
}

#[test]
fn abstract_unix_sockets_outside_cannot_be_reached() {
    // One name is used by two sockets, because sockets of different types do not share their names.
    let name = format!("sandbox-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let stream = UnixListener::bind_addr(&address).unwrap();
    stream.set_nonblocking(true).unwrap();
    let datagram = UnixDatagram::bind_addr(&address).unwrap();
    datagram.set_nonblocking(true).unwrap();
    let program = r#"
import socket, sys
target = chr(0) + sys.argv[1]
def attempt(name, action):
    try:
        action()
        print("succeeded:", name)
    except OSError:
        pass
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET):
    for make in (lambda: socket.socket(socket.AF_UNIX, kind), lambda: socket.socketpair(socket.AF_UNIX, kind)[0]):
        try:
            made = make()
        except OSError:
            continue
        attempt(f"connect {int(kind)}", lambda: made.connect(target))
        attempt(f"sendto {int(kind)}", lambda: made.sendto(b"x", target))
        attempt(f"sendmsg {int(kind)}", lambda: made.sendmsg([b"x"], [], 0, target))
        made.close()
"#;
    let is_reached = || {
        let accepted = std::iter::from_fn(|| stream.accept().ok()).count();
        let received = std::iter::from_fn(|| datagram.recv(&mut [0; 8]).ok()).count();
        (accepted > 0, received > 0)
    };
    let unprotected = python_outside(program, &[&name]);
    for expected in ["connect 1\n", "sendto 2\n", "sendmsg 2\n", "sendto 3\n"] {
        assert!(unprotected.contains(expected), "{unprotected}");
    }
    assert_eq!(is_reached(), (true, true), "without a sandbox");
    let yard = Yard::new();
    for network in [SandboxNetwork::None, SandboxNetwork::Host, SandboxNetwork::LoopbackOnly] {
        let outcome = sandbox_with(network)(&yard).python(program, &[&name]);
        assert_eq!(outcome.success(), "", "{network:?}");
        assert_eq!(is_reached(), (false, false), "{network:?}");
    }
}

#[test]
fn without_a_network_only_unix_sockets_can_be_made() {
    for family in ["AF_INET", "AF_INET6", "AF_NETLINK"] {
        let kind = "SOCK_DGRAM";
        attack(family, Goal::Exit, &format!("socket.socket(socket.{family}, socket.{kind})"));
        // The kernel ignores the upper half of the register.
        let garbage = format!(
            "number = 41 if platform.machine() == 'x86_64' else 198\n\
             call(libc.syscall, number, ctypes.c_ulong(socket.{family} | 0x5a5a << 32), ctypes.c_ulong(socket.{kind} | 0xa5 << 32), 0)"
        );
        attack(&format!("{family} with garbage"), Goal::Exit, &garbage);
    }
    // The upper half must not make a forbidden family look like the allowed one either.
    attack(
        "garbage",
        Goal::Exit,
        "number = 41 if platform.machine() == 'x86_64' else 198\n\
         call(libc.syscall, number, ctypes.c_ulong(2 | 1 << 32), 1, 0)",
    );
    // Not every kernel has these, so they may fail without a sandbox too.
    attack_only_in_sandbox("AF_ALG", "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)", REFUSED);
    for family in [libc::AF_VSOCK, libc::AF_BLUETOOTH, libc::AF_TIPC, libc::AF_RDS, libc::AF_CAN, 42, 44] {
        let program = format!("socket.socket({family}, socket.SOCK_DGRAM)");
        attack_only_in_sandbox(&format!("family {family}"), &program, REFUSED);
    }
    attack_needing_root("packets", Goal::Exit, "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)");
}

#[test]
fn with_a_network_no_sockets_can_be_made_but_those_of_the_internet() {
    for network in [SandboxNetwork::Host, SandboxNetwork::LoopbackOnly] {
        for program in ["socket.socket(socket.AF_UNIX)", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)"] {
            attack_in(&format!("{network:?}"), Goal::Exit, program, sandbox_with(network));
        }
        let yard = Yard::new();
        let sandbox = sandbox_with(network)(&yard);
        sandbox
            .python("import socket; socket.socket(); socket.socket(socket.AF_INET6); socket.socketpair()", &[])
            .success();
    }
}

#[test]
fn servers_of_the_host_on_loopback_are_reached_only_with_the_network_of_the_host() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    let stream = format!("socket.create_connection(('127.0.0.1', {tcp_port}), 10)");
    let datagram =
        format!("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp_port}))");
    attack("tcp", Goal::Exit, &stream);
    attack("udp", Goal::Exit, &datagram);
    attack_in("tcp", Goal::Exit, &stream, sandbox_with(SandboxNetwork::LoopbackOnly));
    // The loopback interface of the sandbox is up, so the datagram is sent, but nobody gets it.
    assert_eq!(udp.recv(&mut [0; 8]).unwrap(), 1, "from the run without a sandbox");
    let yard = Yard::new();
    let alone = sandbox_with(SandboxNetwork::LoopbackOnly)(&yard);
    alone.python(&format!("import socket; {datagram}"), &[]).success();
    assert!(udp.recv(&mut [0; 8]).is_err());
    let host = sandbox_with(SandboxNetwork::Host)(&yard);
    host.python(&format!("import socket; {stream}"), &[]).success();
}

#[test]
fn commands_reach_the_listener_of_the_server_on_their_own_loopback() {
    let yard = Yard::new();
    let sandbox = sandbox_with(SandboxNetwork::LoopbackOnly)(&yard);
    let listener = TcpListener::from(sandbox.resident().listener().unwrap().try_clone_to_owned().unwrap());
    let port = listener.local_addr().unwrap().port();
    let answer = std::thread::spawn(move || {
        use std::io::Write as _;
        listener.accept().unwrap().0.write_all(b"hello").unwrap();
    });
    let program = format!("import socket; print(socket.create_connection(('127.0.0.1', {port})).recv(9))");
    assert_eq!(sandbox.python(&program, &[]).success(), "b'hello'\n");
    answer.join().unwrap();
}
