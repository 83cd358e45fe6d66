//! Signals that are sent to us, and what they mean to a process that is somewhere else.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use client::Signal;
use rustix::process::{Signal as Native, getpid, kill_process};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// What a signal to us is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It would end us: the process gets the same.
    End(Deadly),
    /// For the process alone.
    Pass(Signal),
    /// We shall stop, and the process too.
    Stop,
    /// We go on.
    Continue,
    /// Our terminal has another size.
    Resize,
}

/// A signal that would end us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadly {
    pub(crate) signal: Signal,
    number: u8,
}

impl Deadly {
    /// What a shell reports when a program has ended by it.
    pub(crate) fn exit_code(self) -> u8 {
        128 + self.number
    }
}

pub(super) const TERMINATE: Deadly = Deadly { signal: Signal::Terminate, number: 15 };

const KNOWN: [(Native, Told); 9] = [
    (Native::INT, Told::End(Deadly { signal: Signal::Interrupt, number: 2 })),
    (Native::TERM, Told::End(TERMINATE)),
    (Native::HUP, Told::End(Deadly { signal: Signal::Hangup, number: 1 })),
    (Native::QUIT, Told::End(Deadly { signal: Signal::Quit, number: 3 })),
    (Native::USR1, Told::Pass(Signal::User1)),
    (Native::USR2, Told::Pass(Signal::User2)),
    (Native::TSTP, Told::Stop),
    (Native::CONT, Told::Continue),
    (Native::WINCH, Told::Resize),
];

/// The signals that are sent to us from now on; none of them ends or stops us any more. Signals that we were started to ignore, for instance
/// by `nohup`, stay ignored and are not told of.
pub(crate) struct Signals {
    streams: Vec<(Stream, Told)>,
}

impl Signals {
    /// Begins to listen.
    pub(crate) fn listen() -> io::Result<Self> {
        let listen = |(native, told): (Native, Told)| Ok((signal(SignalKind::from_raw(native.as_raw()))?, told));
        // Going on and another window size are facts; ignoring them would not undo them.
        let is_fact = |told: Told| matches!(told, Told::Continue | Told::Resize);
        let heard = KNOWN.into_iter().filter(|(native, told)| is_fact(*told) || !spawn::is_ignored(*native));
        Ok(Self { streams: heard.map(listen).collect::<io::Result<_>>()? })
    }

    /// The next one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Told {
        poll_fn(|cx| {
            let told = self.streams.iter_mut().find_map(|(stream, told)| match stream.poll_recv(cx) {
                Poll::Ready(Some(())) => Some(*told),
                _ => None,
            });
            told.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Does this, unless a signal comes first that would end us.
    pub(crate) async fn or_deadly<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Deadly> {
        tokio::select! {
            done = work => Ok(done),
            deadly = self.next_deadly() => Err(deadly),
        }
    }

    /// The next one that would end us.
    pub(crate) async fn next_deadly(&mut self) -> Deadly {
        loop {
            if let Told::End(deadly) = self.next().await {
                return deadly;
            }
        }
    }
}

/// Stops us, as the signal would have done if we had not listened.
pub(crate) fn stop_ourselves() {
    if let Err(error) = kill_process(getpid(), Native::STOP) {
        tracing::debug!(%error, "cannot stop");
    }
}
