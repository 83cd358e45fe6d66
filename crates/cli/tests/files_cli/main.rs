//! The commands `cp`, `ls`, `cat`, `rm` and `mkdir` as a person or a script uses them: the real binary, real files, real servers.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod chosen;
mod clones;
mod copying;
mod cuts;
mod failing;
mod hostile;
mod looking;
mod published;
mod signals;
mod sparse;
mod support;
mod trees;
