//! Limits of a policy. They bound what a policy costs to resolve and to look up, and leave much room for policies that
//! people write. They are fixed, because no real policy comes near them.

/// Entries that a client may send in one policy. Each writable entry gets up to seven protections in addition.
pub const MAX_REQUESTED_ENTRIES: usize = 2048;

/// Workspace roots of one policy. Each `project_roots` entry is multiplied by them.
pub const MAX_WORKSPACE_ROOTS: usize = 1024;

/// Entries after resolution, without the protections that the sandbox adds.
pub const MAX_RESOLVED_ENTRIES: usize = 8192;

/// Bytes of one path, and of one glob with the directory that it is relative to. This is the length that Linux allows
/// for a path.
pub const MAX_PATH_BYTES: usize = 4095;

/// Bytes of all paths and globs after resolution. A request with a thousand workspace roots and the protected paths in them
/// needs about a quarter of this.
pub const MAX_TOTAL_BYTES: usize = 1024 * 1024;

/// Bytes of one pattern as the client sends it.
pub const MAX_PATTERN_BYTES: usize = 1024;

/// Bytes of all patterns after `{a,b}` was expanded, without their leading names that have no wildcard. The time of
/// one look-up is at most proportional to this number times the length of the path.
pub const MAX_GLOB_BYTES: usize = 16 * 1024;

/// Product of the bytes of all paths and the bytes that [`MAX_GLOB_BYTES`] counts. It bounds the time for finding out which protected
/// paths a glob denies: about a second for the worst policy. A policy with very many paths can have fewer globs.
pub const MAX_PATH_TIMES_GLOB_BYTES: usize = 2 * 1024 * 1024 * 1024;

/// Patterns that one pattern with `{a,b}` may stand for.
pub const MAX_ALTERNATIVES: usize = 64;
