//! The commands `cp`, `ls`, `cat`, `rm` and `mkdir` as a person or a script uses them. A path such as `:/x` is on the
//! server. A path such as `/x` is local for `cp`. For the other commands it is local if no flag such as `--connect`
//! names a server.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod choosing_machines;
mod clones;
mod copying;
mod cuts;
mod escaping;
mod failing;
mod ls_cat_rm_mkdir;
mod published;
mod signals;
mod sparse;
mod support;
mod trees;
