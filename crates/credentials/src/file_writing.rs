//! Replaces a file with secrets as a whole, so that other programs read either the old or the new content. Start with
//! [`replace`].

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes the content to a new file that only this user can read, and renames it to `path`. A link at `path` is
/// replaced, not followed.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = unused_path(path);
    let write = || {
        // Never opens a file or link that is there already.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(content)?;
        // Otherwise a crash of the machine could leave an empty file.
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        let _best_effort = fs::remove_file(&new);
    })
}

/// A path beside `path` that no other thread or process uses.
fn unused_path(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let nanoseconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
    name.push(format!(".{}-{}-{nanoseconds}.new", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
    path.with_file_name(name)
}
