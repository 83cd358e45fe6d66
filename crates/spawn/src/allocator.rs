//! Makes the allocator of glibc return freed memory to the system. This concerns the whole process. With another C
//! library the functions do nothing.

/// Allocations of at least this size get their own memory mapping, which goes back to the system when they are freed. Buffers for output
/// are smaller, because a new mapping costs a page fault for every page.
#[cfg(target_env = "gnu")]
const MMAP_THRESHOLD_BYTES: i32 = 1 << 20;

/// When more than this many bytes are free at the end of the heap, they go back to the system.
#[cfg(target_env = "gnu")]
const TRIM_THRESHOLD_BYTES: i32 = 2 << 20;

/// Sets fixed limits for the freed memory that this process keeps. Call it once, at the start. By default glibc
/// raises these limits when large memory is freed, and after a few large messages it keeps tens of MiB for ever.
pub fn limit_kept_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes integers only, and does its own locking.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}

/// Gives the system back the freed memory that lies between memory in use. glibc never does this by itself. The call walks through all heaps,
/// so make it only after much memory was freed.
pub fn trim_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer only, and locks each heap while it works on it.
    unsafe {
        libc::malloc_trim(0);
    }
}
