//! Limits of policies that no flag changes: those of sandboxes, and those of the network of a process.

use std::time::Duration;

use crate::limits::fixed_list::{fixed_limits, number};

fixed_limits! {
    "Policies of sandboxes" {
        /// Entries of the policy of a sandbox.
        /// The request is refused, as for the other limits of this group: `process/start` with -32602, `fs/*` with -32600.
        MAX_POLICY_ENTRIES: usize = sandbox::policy_limits::MAX_REQUESTED_ENTRIES, Count,
        "No policy that a person or a program writes comes near it.";

        /// Workspace roots of a policy.
        /// The request is refused.
        MAX_POLICY_ROOTS: usize = sandbox::policy_limits::MAX_WORKSPACE_ROOTS, Count,
        "Each entry for the workspace roots is multiplied by them.";

        /// Paths and globs that the entries of a policy stand for.
        /// The request is refused.
        MAX_POLICY_PATHS: usize = sandbox::policy_limits::MAX_RESOLVED_ENTRIES, Count,
        "A sandbox may need a mount for each of them.";

        /// Bytes of all paths and globs that the entries of a policy stand for.
        /// The request is refused.
        MAX_POLICY_BYTES: usize = sandbox::policy_limits::MAX_TOTAL_BYTES, Bytes,
        "It bounds the time for comparing paths with globs: about a second for the worst policy.";

        /// Bytes of a path of a policy, or of a glob with the directory that it is relative to.
        /// The request is refused.
        MAX_POLICY_PATH_BYTES: usize = sandbox::policy_limits::MAX_PATH_BYTES, Bytes,
        "Linux opens no longer path.";

        /// Bytes of a glob in a policy.
        /// The request is refused.
        MAX_POLICY_GLOB_BYTES: usize = sandbox::policy_limits::MAX_PATTERN_BYTES, Bytes,
        "This size is enough for every glob that a person writes.";

        /// Bytes of all globs that the entries of a policy stand for, without leading names that have no wildcard.
        /// The request is refused.
        MAX_POLICY_GLOBS_BYTES: usize = sandbox::policy_limits::MAX_GLOB_BYTES, Bytes,
        "Each path that is looked up is compared with all globs.";

        /// Globs that a glob with `{a,b}` in a policy stands for.
        /// The request is refused.
        MAX_POLICY_ALTERNATIVES: usize = sandbox::policy_limits::MAX_ALTERNATIVES, Count,
        "A few groups could otherwise stand for millions of globs.";

        /// Product of the two limits of bytes above: bytes of all paths and globs, times bytes of all globs.
        /// The request is refused.
        MAX_POLICY_PATH_TIMES_GLOB_BYTES: usize = sandbox::policy_limits::MAX_PATH_TIMES_GLOB_BYTES, Count,
        "Each path is compared with each glob, which takes about a second for the worst policy. A policy with many paths can have fewer globs.";

        /// Files that the deny globs of a policy match.
        /// The request is refused.
        MAX_POLICY_GLOB_MATCHES: usize = sandbox::MAX_GLOB_MATCHES, Count,
        "Each of them becomes a mount, which every command copies.";

        /// Files that the server looks at to find the matches of all deny globs of a policy.
        /// The request is refused.
        MAX_POLICY_GLOB_SCANNED: usize = sandbox::MAX_GLOB_SCANNED, Count,
        "The search is repeated before every command.";

        /// Steps of comparing names of files with the deny globs of a policy. A comparison takes a few steps, and more for a long name or glob.
        /// The request is refused.
        MAX_POLICY_GLOB_STEPS: usize = sandbox::MAX_GLOB_STEPS, Count,
        "About half a second. The search is repeated before every command.";

        /// Bytes of shared memory (`/dev/shm`) of all commands of a sandbox together.
        /// A write fails with `ENOSPC`.
        MAX_SANDBOX_SHARED_MEMORY: u64 = sandbox::MAX_SHARED_MEMORY_BYTES, Bytes,
        "As in many containers.";

        /// Files in the shared memory of a sandbox.
        /// A command cannot make a further file.
        MAX_SANDBOX_SHARED_FILES: u32 = sandbox::MAX_SHARED_MEMORY_FILES, Count,
        "An empty file needs memory too.";

        /// Terminals that the commands of a sandbox have at once, without those of `tty: true`.
        /// A command cannot make a further terminal.
        MAX_SANDBOX_TERMINALS: u32 = sandbox::MAX_TERMINALS, Count,
        "The machine has a limit for the terminals of all its processes together.";

        /// Bytes of a `.git` file or a file `commondir` that names another directory.
        /// The directory that a `.git` file names is not protected. If the file is a `commondir`, the policy is refused.
        MAX_GIT_FILE_BYTES: u64 = 1 << 20, Bytes,
        "Git refuses a larger file too.";
    }

    "Network policy of processes" {
        /// Unanswered requests of the server to a client, such as `network/policyRequest`.
        /// A further question of the same connection is answered with no.
        MAX_SERVER_REQUESTS: usize = session::limits::MAX_SERVER_REQUESTS, Count,
        "Part of the protocol.";

        /// Bytes of the result of such a request.
        /// A larger result counts as no.
        MAX_CLIENT_ANSWER_BYTES: usize = 16 << 10, Bytes,
        "The longest valid result is far shorter.";

        /// Time that a client has for `network/policyRequest`, in addition to `policyDecisionTimeoutMs`.
        /// The question counts as answered with no.
        POLICY_ANSWER_GRACE: Duration = Duration::from_secs(5), Milliseconds,
        "Part of the protocol.";

        /// Concurrent connections to the network proxy of a process, but no more than half of those of a session.
        /// A further connection waits until another one ends.
        MAX_CONNECTIONS_PER_PROXY: usize = proxy::limits::MAX_CONNECTIONS, Count,
        "Each connection takes two descriptors of the server. Browsers and package managers open fewer.";

        /// Concurrent connections to the network proxies of all processes of a session, but no more than a quarter of those of all sessions.
        /// A further connection waits until another one ends.
        MAX_PROXY_CONNECTIONS: usize = 512, Count,
        "Each connection takes two descriptors of the server, which all sessions share.";

        /// Concurrent connections to the network proxies of all sessions, but no more than an eighth of the server's limit of open files.
        /// A further connection waits until another one ends.
        MAX_PROXY_CONNECTIONS_TOTAL: usize = 4096, Count,
        "Each connection takes two descriptors of the server. At least three quarters of its descriptors are left for other work.";

        /// Domain patterns of a network proxy (`domains`) that allow or deny hosts.
        /// `process/start` is refused with -32602.
        MAX_PROXY_PATTERNS: usize = proxy::limits::MAX_PATTERNS, Count,
        "A pattern with a wildcard stands for all hosts of a domain.";

        /// Bytes of all these domain patterns.
        /// `process/start` is refused with -32602.
        MAX_PROXY_PATTERN_BYTES: usize = proxy::limits::MAX_PATTERN_BYTES, Bytes,
        "The server keeps the patterns as long as the process.";

        /// Bytes of the headers of a request to a network proxy.
        /// The request is answered with status 431.
        MAX_PROXY_REQUEST_HEAD_BYTES: usize = proxy::limits::MAX_REQUEST_HEAD_BYTES, Bytes, "Web servers accept less.";

        /// Bytes of the headers of a response that a network proxy passes on, and of the informational responses (1xx) before it.
        /// The request is answered with status 502.
        MAX_PROXY_RESPONSE_HEAD_BYTES: usize = proxy::limits::MAX_RESPONSE_HEAD_BYTES, Bytes, "Web browsers accept no more.";

        /// Headers of a request to a network proxy, and of a response that it passes on.
        /// The request is answered with status 431, or 502 if the response has more.
        MAX_PROXY_HEADERS: usize = proxy::limits::MAX_HEADERS, Count,
        "As many as an HTTP answer to a client may have.";

        /// Bytes of the method of an HTTP request to a network proxy.
        /// The request is answered with status 400.
        MAX_PROXY_METHOD_BYTES: usize = proxy::limits::MAX_METHOD_BYTES, Bytes,
        "The longest registered method has 17 bytes.";

        /// Bytes of the name of a host that a program asks a network proxy for, or of a host in a domain pattern.
        /// The request is answered with status 400, or the SOCKS5 code 1. `process/start` with such a pattern is refused with -32602.
        MAX_PROXY_HOST_BYTES: usize = proxy::limits::MAX_HOST_BYTES, Bytes,
        "DNS allows no longer name.";

        /// Addresses of a host that a network proxy tries.
        /// Further addresses are not tried.
        MAX_PROXY_ADDRESSES: usize = proxy::limits::MAX_ADDRESSES, Count,
        "If the first addresses of a host do not answer, the others rarely do.";

        /// Time for the headers of a request to a network proxy, or for a SOCKS5 handshake.
        /// The connection is closed.
        PROXY_HANDSHAKE_TIMEOUT: Duration = proxy::limits::HANDSHAKE_TIMEOUT, Milliseconds,
        "A working program needs far less time.";

        /// Time in which a network proxy looks up the name of a target.
        /// The request is answered with status 504, or the SOCKS5 code 6.
        PROXY_LOOKUP_TIMEOUT: Duration = proxy::limits::LOOKUP_TIMEOUT, Milliseconds,
        "Resolvers give up sooner. A resolver that hangs does not hold connections to the proxy for ever.";

        /// Time in which a network proxy connects to a target.
        /// The request is answered with status 504, or the SOCKS5 code 6.
        PROXY_CONNECT_TIMEOUT: Duration = proxy::limits::CONNECT_TIMEOUT, Milliseconds,
        "A target that can be reached accepts sooner.";

        /// Time without a byte on a connection to a network proxy.
        /// The connection is closed.
        PROXY_IDLE_TIMEOUT: Duration = proxy::limits::IDLE_TIMEOUT, Milliseconds,
        "Long enough for protocols with pings, and an abandoned connection does not stay for ever.";
    }
}
