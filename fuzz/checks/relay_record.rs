//! Checks that must succeed for any frames that a relay passes on after the handshake. Used by the fuzz target and by the
//! test that replays the corpus.
//!
//! An input is a list of actions of the relay, of two bytes each. The relay has the frames that both ends have sent, and
//! may drop, repeat, alter and invent frames. Whatever it does, an end reads only what the other one has written, in
//! order, or fails.

use std::time::{Duration, Instant};

use relay::{
    ExecutorHandshake, Features, Frame, FrameBody, HarnessHandshake, RelayIdentity, RelayStream, StreamBinding,
};

const BINDING: StreamBinding<'static> =
    StreamBinding { environment_id: "env", registration_id: "registration", stream_id: "stream" };

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(input: &[u8]) {
    let Some((kind, actions)) = input.split_first() else { return };
    let features = if kind & 1 == 0 { Features::ACKNOWLEDGES } else { Features::NONE };
    let mut now = Instant::now();
    let [mut sender, mut receiver] = ends(features, now);
    let mut captured: Vec<Frame> = Vec::new();
    let (mut written, mut read) = (0_u8, 0_u8);
    for action in actions.chunks_exact(2) {
        let number = usize::from(action[1]);
        match action[0] % 8 {
            // The sender writes the next number as one byte.
            0 if sender.writable_records() > 0 && written < u8::MAX => {
                let Ok(()) = sender.write(&[written]) else { return };
                written += 1;
                captured.extend(std::iter::from_fn(|| sender.next_frame(now)));
            }
            1 => now += Duration::from_millis(number as u64 * 10),
            2 => captured.extend(std::iter::from_fn(|| sender.next_frame(now))),
            // The relay passes on a frame that it has, perhaps altered.
            kind @ (3 | 4) if !captured.is_empty() => {
                let mut frame = captured[number % captured.len()].clone();
                if kind == 4 {
                    alter(&mut frame, action[1]);
                }
                if receiver.handle(frame, now).is_err() {
                    return;
                }
            }
            // The answers of the receiver arrive.
            5 => {
                while let Some(frame) = receiver.next_frame(now) {
                    if sender.handle(frame, now).is_err() {
                        return;
                    }
                }
            }
            // The relay invents a frame.
            6 => {
                let body = match number % 5 {
                    0 => FrameBody::Ack,
                    1 => FrameBody::Heartbeat,
                    2 => FrameBody::Resume { next_seq: action[1].into() },
                    3 => FrameBody::Data { seq: action[1].into(), record: vec![action[1]; number].into() },
                    _ => FrameBody::Handshake(vec![action[1]].into()),
                };
                let frame =
                    Frame { ack: (action[1] >> 4).into(), ack_bits: number as u32, ..Frame::new("stream", body) };
                let end = if number & 1 == 0 { &mut sender } else { &mut receiver };
                if end.handle(frame, now).is_err() {
                    return;
                }
            }
            _ => loop {
                match receiver.read(now) {
                    Ok(Some(bytes)) => {
                        assert_eq!(&bytes[..], [read], "what was read is not what was written");
                        assert_ne!(read, written, "more was read than written");
                        read += 1;
                    }
                    Ok(None) => break,
                    Err(_) => return,
                }
            },
        }
    }
}

fn alter(frame: &mut Frame, how: u8) {
    let FrameBody::Data { seq, record } = &mut frame.body else { return };
    if how & 1 == 0 {
        *seq = seq.wrapping_add(how.into());
        return;
    }
    let mut bytes = record.to_vec();
    let place = usize::from(how) % bytes.len();
    bytes[place] ^= how;
    *record = bytes.into();
}

fn ends(features: Features, now: Instant) -> [RelayStream; 2] {
    let generate = || RelayIdentity::generate().expect("the system has randomness");
    let (harness, executor) = (generate(), generate());
    let (waiting, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "authorization")
        .expect("the keys are right");
    let read = ExecutorHandshake::read(&executor, BINDING, &first).expect("the message is right");
    let (second, at_executor) = read.accept().expect("the keys are right");
    let at_harness = waiting.finish(&second).expect("the answer is right");
    [at_harness, at_executor].map(|channel| RelayStream::new("stream", channel, features, now))
}
