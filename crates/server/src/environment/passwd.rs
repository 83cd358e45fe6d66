//! The entry of a user in `/etc/passwd`.

/// The place of the home directory.
pub(super) const HOME: usize = 5;
/// The place of the shell.
pub(super) const SHELL: usize = 6;

/// A field of the entry of user `uid`, unless it is empty.
pub(super) fn field(passwd: &[u8], uid: u32, place: usize) -> Option<&[u8]> {
    const UID: usize = 2;
    let uid = uid.to_string();
    let entry = passwd
        .split(|&byte| byte == b'\n')
        .find(|line| line.split(|&byte| byte == b':').nth(UID) == Some(uid.as_bytes()))?;
    entry.split(|&byte| byte == b':').nth(place).map(<[u8]>::trim_ascii).filter(|field| !field.is_empty())
}
