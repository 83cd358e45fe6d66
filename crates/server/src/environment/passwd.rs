//! Reads fields from the text of `/etc/passwd`.

/// Index of the home directory in a line, counted from 0.
pub(super) const HOME: usize = 5;
/// Index of the login shell in a line, counted from 0.
pub(super) const SHELL: usize = 6;

/// The field with this index in the line of user `uid`. None if there is no such line, or if its field is
/// missing or empty.
pub(super) fn field(passwd: &[u8], uid: u32, index: usize) -> Option<&[u8]> {
    const UID: usize = 2;
    let uid = uid.to_string();
    let entry = passwd
        .split(|&byte| byte == b'\n')
        .find(|line| line.split(|&byte| byte == b':').nth(UID) == Some(uid.as_bytes()))?;
    entry.split(|&byte| byte == b':').nth(index).map(<[u8]>::trim_ascii).filter(|field| !field.is_empty())
}
