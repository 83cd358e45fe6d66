//! How long the C library keeps memory that was freed.

/// Larger allocations are mappings of their own, which end when they are freed. Above anything that is allocated for
/// each piece of output, because a mapping costs a page fault for every page each time.
#[cfg(target_env = "gnu")]
const OWN_MAPPING_BYTES: i32 = 1 << 20;

/// Freed memory at the end of a heap beyond this is given back.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 2 << 20;

/// Gives large freed memory back to the system at once. Left alone, glibc raises its thresholds with the largest
/// allocation it has seen, and after a single message of 60 MiB keeps twice as much for good.
pub fn limit_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes integers only, and locks what it changes.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Gives freed memory back that lies between memory in use, which the library never does by itself. Walks through every
/// heap, so it is for after much was freed.
pub fn trim_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer only, and locks each heap while it works on it.
    unsafe {
        libc::malloc_trim(0);
    }
}
