//! Handshakes with an independent implementation in Python, in both roles, and then records in both directions. The
//! unit tests compare every byte of one handshake with known values; here both sides use new keys each time.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use relay::{
    Channel, ExecutorHandshake, HandshakeFailure, HarnessHandshake, RelayIdentity, RelayPublicKey, StreamBinding,
};
use serde_json::json;

const BINDING: StreamBinding<'_> =
    StreamBinding { environment_id: "env-ü", registration_id: "registration-1", stream_id: "stream-1" };

/// The authorization that the harness sends in its handshake, whether it is ours or the one in Python.
const AUTHORIZATION: &str = "a grant with ünicode";

/// The Python program at the other end. Each message on its stdin and stdout is a line of hexadecimal digits.
struct PythonEnd {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl PythonEnd {
    fn start(role: &str, binding: StreamBinding<'_>) -> Self {
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python_peer/hybrid_ik.py");
        let StreamBinding { environment_id, registration_id, stream_id } = binding;
        let mut process = Command::new("python3")
            .args([program, role, environment_id, registration_id, stream_id])
            .env("PYTHONUTF8", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is not installed");
        let (input, output) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Self { process, input, output }
    }

    fn say(&mut self, bytes: &[u8]) {
        writeln!(self.input, "{}", hex(bytes)).unwrap();
    }

    /// The next line of the Python program, not decoded.
    fn hear_line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the program in Python has ended; its error is above");
        line.trim_end().to_owned()
    }

    fn hear(&mut self) -> Vec<u8> {
        let line = self.hear_line();
        let digits = line.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        digits.map(|pair| u8::from_str_radix(pair, 16).unwrap_or_else(|_| panic!("not bytes: {line}"))).collect()
    }

    /// Reads the two public keys of the Python program, as a registry would name them.
    fn hear_key(&mut self) -> RelayPublicKey {
        let [x25519, mlkem768] = [(); 2].map(|()| STANDARD.encode(self.hear()));
        serde_json::from_value(json!({
            "suite": "Noise_hybridIK_X25519+MLKEM768_AESGCM_SHA256",
            "x25519_public_key": x25519,
            "mlkem768_public_key": mlkem768,
        }))
        .unwrap()
    }

    fn say_key(&mut self, key: &RelayPublicKey) {
        let key = serde_json::to_value(key).unwrap();
        for name in ["x25519_public_key", "mlkem768_public_key"] {
            self.say(&STANDARD.decode(key[name].as_str().unwrap()).unwrap());
        }
    }

    /// Exchanges records in both directions. The Python program sends each record back with its bytes reversed.
    fn exchange_records(mut self, mut channel: Channel) {
        for text in [&b"first record of python"[..], b""] {
            assert_eq!(channel.opener.open(&mut self.hear()), Ok(text));
        }
        for text in [&b"a"[..], b"abc", &[7; 1000], &(0..=255).collect::<Vec<u8>>()] {
            let mut record = text.to_vec();
            channel.sealer.seal(&mut record).unwrap();
            self.say(&record);
            let reversed: Vec<u8> = text.iter().rev().copied().collect();
            assert_eq!(channel.opener.open(&mut self.hear()), Ok(&reversed[..]));
        }
        self.say(b"");
        assert!(self.process.wait().unwrap().success());
    }
}

impl Drop for PythonEnd {
    fn drop(&mut self) {
        let _has_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The Python program begins the handshake, and our executor reads its message.
fn python_begins(
    binding: StreamBinding<'_>,
) -> (PythonEnd, RelayPublicKey, Result<ExecutorHandshake, HandshakeFailure>) {
    let identity = RelayIdentity::generate().unwrap();
    let mut python = PythonEnd::start("harness", binding);
    python.say_key(&identity.public_key());
    python.say(AUTHORIZATION.as_bytes());
    let (key, first) = (python.hear_key(), python.hear());
    (python, key, ExecutorHandshake::read(&identity, BINDING, &first))
}

/// Our harness begins the handshake, and the Python program reads its message.
fn python_reads(binding: StreamBinding<'_>) -> (PythonEnd, RelayPublicKey, HarnessHandshake) {
    let identity = RelayIdentity::generate().unwrap();
    let mut python = PythonEnd::start("executor", binding);
    let executor = python.hear_key();
    let (waiting, first) = HarnessHandshake::begin(&identity, &executor, BINDING, AUTHORIZATION).unwrap();
    python.say(&first);
    (python, identity.public_key(), waiting)
}

#[test]
fn a_harness_in_python_talks_to_our_executor() {
    let (mut python, key, read) = python_begins(BINDING);
    let read = read.unwrap();
    assert_eq!((read.harness_key(), read.authorization()), (&key, AUTHORIZATION));
    let (answer, channel) = read.accept().unwrap();
    python.say(&answer);
    python.exchange_records(channel);
}

#[test]
fn our_harness_talks_to_an_executor_in_python() {
    let (mut python, key, waiting) = python_reads(BINDING);
    assert_eq!((python.hear_key(), python.hear()), (key, AUTHORIZATION.as_bytes().to_vec()));
    let channel = waiting.finish(&python.hear()).unwrap();
    python.exchange_records(channel);
}

#[test]
fn both_ends_refuse_the_other_one_if_it_means_another_stream() {
    let other_stream = StreamBinding { stream_id: "stream-2", ..BINDING };
    let (_python, _, read) = python_begins(other_stream);
    assert_eq!(read.err(), Some(HandshakeFailure::Message));
    let (mut python, _, _waiting) = python_reads(other_stream);
    assert_eq!(python.hear_line(), "refused");
}

#[test]
fn an_altered_answer_is_refused_by_both_ends() {
    let (mut python, _, read) = python_begins(BINDING);
    let (mut answer, _) = read.unwrap().accept().unwrap();
    *answer.last_mut().unwrap() ^= 1;
    python.say(&answer);
    assert_eq!(python.hear_line(), "refused");
    let (mut python, _, waiting) = python_reads(BINDING);
    let _learned = (python.hear_key(), python.hear());
    let mut answer = python.hear();
    answer[0] ^= 1;
    assert_eq!(waiting.finish(&answer).err(), Some(HandshakeFailure::Message));
}
