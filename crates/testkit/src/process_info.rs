//! Facts about a process from `/proc`: memory, threads, descriptors, state, descendants and CPU time. A function
//! panics if the process is gone, unless its comment says otherwise.

use std::path::PathBuf;

fn proc(pid: u32, file: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{file}"))
}

/// Resident memory in bytes. Panics for a zombie too, which has no memory.
pub fn resident_bytes(pid: u32) -> usize {
    status_bytes(pid, "VmRSS:").unwrap()
}

/// Largest resident memory so far, in bytes. 0 if the process is gone or is a zombie.
pub fn peak_resident_bytes(pid: u32) -> usize {
    status_bytes(pid, "VmHWM:").unwrap_or(0)
}

fn status_bytes(pid: u32, label: &str) -> Option<usize> {
    let status = std::fs::read_to_string(proc(pid, "status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().ok().map(|kib| kib * 1024)
}

/// Number of open file descriptors.
pub fn open_fds(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "fd")).unwrap().count()
}

/// Number of threads.
pub fn threads(pid: u32) -> usize {
    std::fs::read_dir(proc(pid, "task")).unwrap().count()
}

/// State of a process as a letter (`R`, `S`, `Z`, …). None if the process is gone.
pub fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(proc(pid, "stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process exists and is not a zombie. A zombie has ended, but its parent may reap it late or never.
pub fn is_alive(pid: u32) -> bool {
    !matches!(process_state(pid), None | Some('Z' | 'X'))
}

/// All descendants of a process, zombies included. Empty if the process is gone.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(child) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(proc(child, "stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        if let Some(parent) = rest.split_whitespace().nth(1).and_then(|field| field.parse::<u32>().ok()) {
            parents.push((child, parent));
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child));
        next += 1;
    }
    found.remove(0);
    found
}

/// CPU time that a process has used so far: user time plus system time.
pub fn cpu_time(pid: u32) -> std::time::Duration {
    let stat = std::fs::read_to_string(proc(pid, "stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    // `fields` begins with field 3 of proc_pid_stat(5). So these are the fields 14 and 15: `utime` and `stime`.
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    std::time::Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
