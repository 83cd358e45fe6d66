//! Makes the directory trees that the benchmarks walk and search.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The pattern of the search. It matches in a few hundred files.
pub(super) const PATTERN: &str = r"probe_\w+_handler\(";

const FILES: usize = 75_000;
const FILES_PER_DIRECTORY: usize = 25;
const DIRECTORIES_PER_DIRECTORY: usize = 50;
/// One file in this many has matches.
const RARE: usize = 200;
/// Lines of a file on average: about 16 KiB, as in the sources of the Linux kernel.
const LINES: usize = 440;

/// Makes two trees of directories with up to 99 files each, with `entries` entries together. Returns their roots.
pub(super) fn flat(root: &Path, entries: usize) -> Result<Vec<PathBuf>> {
    let halves: Vec<PathBuf> = ["a", "b"].iter().map(|name| root.join(name)).collect();
    for half in &halves {
        let mut left = entries / halves.len() - 1;
        fs::create_dir(half)?;
        for number in 0.. {
            if left == 0 {
                break;
            }
            let directory = half.join(format!("d{number:03}"));
            fs::create_dir(&directory)?;
            left -= 1;
            let files = left.min(99);
            for number in 0..files {
                fs::File::create(directory.join(format!("f{number:02}")))?;
            }
            left -= files;
        }
    }
    Ok(halves)
}

/// A tree about as large as that of the Linux kernel, made once and kept beside the program.
pub(super) fn kernel_sized() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let beside = program.parent().context("this program has no directory")?;
    let root = beside.join("bench-tree");
    let done = beside.join("bench-tree.done");
    if done.exists() {
        return Ok(root);
    }
    eprintln!("making a tree of {FILES} files …");
    let _was_not_there = fs::remove_dir_all(&root);
    for number in 0..FILES {
        let leaf = number / FILES_PER_DIRECTORY;
        let directory = root.join(format!("part{:02}/driver{leaf:04}", leaf / DIRECTORIES_PER_DIRECTORY));
        if number.is_multiple_of(FILES_PER_DIRECTORY) {
            fs::create_dir_all(&directory)?;
        }
        fs::write(directory.join(format!("unit{number:05}.c")), text(number))?;
    }
    fs::write(done, "")?;
    Ok(root)
}

/// The text of a file, the same in every run.
fn text(number: usize) -> String {
    let mut out = String::with_capacity(LINES * 40);
    let mut state = number as u64 + 1;
    let mut random = move || {
        // SplitMix64: random enough that the text does not repeat.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let lines = LINES / 2 + random() as usize % LINES;
    for line in 0..lines {
        let value = random();
        let _to_a_string = match value % 5 {
            0 => writeln!(out, "static int register_{:x}(struct device *dev, u32 flags)", value >> 40),
            1 => writeln!(out, "\tif (dev->state & FLAG_{:X}) {{", value >> 44),
            2 => writeln!(out, "\t\treturn -E{:X};\n\t}}", value >> 52),
            3 => writeln!(out, "/* {:016x} {:016x} */", value, value.rotate_left(17)),
            _ => writeln!(out, "\twrite_reg(dev, 0x{:04x}, value{line});", value >> 48),
        };
        if number.is_multiple_of(RARE) && line % 100 == 7 {
            let _to_a_string = writeln!(out, "\tprobe_{:x}_handler(dev);", value >> 48);
        }
    }
    out
}
