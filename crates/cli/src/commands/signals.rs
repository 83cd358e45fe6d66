//! Receives signals that are sent to this program, and says how the program reacts to each. It sends no signal to the
//! process in the environment; the caller does that.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use client::Signal;
use rustix::process::{Signal as Native, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// The reaction of this program to a signal. "The process" is the one that the command runs in an environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalEffect {
    /// End. A command with a process in the foreground passes the signal on first if it can, and ends with the
    /// process.
    End(FatalSignal),
    /// Pass the signal on to the process.
    Pass(Signal),
    /// Stop ourselves, as Ctrl-Z does, and the process if it has no terminal of its own.
    Stop,
    /// Continue the process, or make the terminal raw again, after a stop.
    Continue,
    /// Tell the process the new size of our terminal.
    Resize,
}

/// A signal that asks us to end: interrupt, terminate, hangup or quit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FatalSignal {
    pub(crate) signal: Signal,
    number: u8,
}

impl FatalSignal {
    /// The exit code that a shell reports for a program that was ended by this signal.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.number
    }
}

pub(super) const TERMINATE: FatalSignal = FatalSignal { signal: Signal::Terminate, number: 15 };

/// The signals that are received, and the reaction to each.
const RECEIVED: [(Native, SignalEffect); 9] = [
    (Native::INT, SignalEffect::End(FatalSignal { signal: Signal::Interrupt, number: 2 })),
    (Native::TERM, SignalEffect::End(TERMINATE)),
    (Native::HUP, SignalEffect::End(FatalSignal { signal: Signal::Hangup, number: 1 })),
    (Native::QUIT, SignalEffect::End(FatalSignal { signal: Signal::Quit, number: 3 })),
    (Native::USR1, SignalEffect::Pass(Signal::User1)),
    (Native::USR2, SignalEffect::Pass(Signal::User2)),
    (Native::TSTP, SignalEffect::Stop),
    (Native::CONT, SignalEffect::Continue),
    (Native::WINCH, SignalEffect::Resize),
];

/// Receives signals. From [`listen`](Self::listen) on, none of them ends or stops us by itself, even after this value
/// is dropped. Signals that we were started to ignore, for example by `nohup`, stay ignored and are not received,
/// except SIGCONT and SIGWINCH.
pub(crate) struct Signals {
    streams: Vec<(Stream, SignalEffect)>,
}

impl Signals {
    /// Starts to receive signals.
    pub(crate) fn listen() -> io::Result<Self> {
        Self::listen_for(|_| true)
    }

    /// Starts to receive signals except the one of Ctrl-Z, which then stops us as it stops most programs.
    pub(crate) fn listen_except_stop() -> io::Result<Self> {
        Self::listen_for(|effect| effect != SignalEffect::Stop)
    }

    fn listen_for(is_wanted: impl Fn(SignalEffect) -> bool) -> io::Result<Self> {
        let listen =
            |(native, effect): (Native, SignalEffect)| Ok((signal(SignalKind::from_raw(native.as_raw()))?, effect));
        // These two report a change that has already happened, so they are received even if we were started to ignore
        // them.
        let is_report = |effect: SignalEffect| matches!(effect, SignalEffect::Continue | SignalEffect::Resize);
        let received = RECEIVED.into_iter().filter(|(_, effect)| is_wanted(*effect));
        let received = received.filter(|(native, effect)| is_report(*effect) || !spawn::is_ignored(*native));
        Ok(Self { streams: received.map(listen).collect::<io::Result<_>>()? })
    }

    /// Waits for the next signal. Cancel safe.
    pub(crate) async fn next(&mut self) -> SignalEffect {
        poll_fn(|cx| {
            let effect = self.streams.iter_mut().find_map(|(stream, effect)| match stream.poll_recv(cx) {
                Poll::Ready(Some(())) => Some(*effect),
                _ => None,
            });
            effect.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Waits for `work`, or for a fatal signal if that comes first.
    pub(crate) async fn or_fatal<T>(&mut self, work: impl Future<Output = T>) -> Result<T, FatalSignal> {
        tokio::select! {
            done = work => Ok(done),
            fatal = self.next_fatal() => Err(fatal),
        }
    }

    /// Waits for the next fatal signal. Other signals that come before it are dropped.
    pub(crate) async fn next_fatal(&mut self) -> FatalSignal {
        loop {
            if let SignalEffect::End(fatal) = self.next().await {
                return fatal;
            }
        }
    }
}

/// Stops this program until SIGCONT, as Ctrl-Z would have done if we did not listen for its signal.
pub(crate) fn stop_ourselves() {
    if let Err(error) = kill_process(getpid(), Native::STOP) {
        tracing::debug!(%error, "cannot stop");
    }
}
