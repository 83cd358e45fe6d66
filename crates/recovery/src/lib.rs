//! What a client does when its connection breaks, as values: no sockets, no tasks, no clock of their own.
#![forbid(unsafe_code)]
