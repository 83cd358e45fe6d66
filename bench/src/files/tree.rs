//! Makes the directory trees that the benchmarks of `fs/walk` and `fs/search` use.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The pattern of the search. It matches in a few hundred files.
pub(super) const PATTERN: &str = r"probe_\w+_handler\(";

const FILES: usize = 75_000;
const FILES_PER_DIRECTORY: usize = 25;
const DIRECTORIES_PER_DIRECTORY: usize = 50;
/// One file in this many has lines that match [`PATTERN`].
const FILES_PER_MATCH: usize = 200;
/// Average number of snippets, of one or two lines each, in a file. They make a file of about 16 KiB, the average
/// size in the sources of the Linux kernel.
const SNIPPETS: usize = 440;

/// Makes two directory trees and returns their roots. Together they have `entries` files and directories, the roots
/// included. Each directory below a root has up to 99 files.
pub(super) fn make_walk_trees(root: &Path, entries: usize) -> Result<Vec<PathBuf>> {
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

/// Returns the root of a tree about as large as the sources of the Linux kernel. The first run makes the tree and
/// leaves it in the directory of this program, for later runs.
pub(super) fn make_search_tree() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let beside = program.parent().context("this program has no directory")?;
    let root = beside.join("bench-tree");
    let done = beside.join("bench-tree.done");
    if done.exists() {
        return Ok(root);
    }
    eprintln!("making a tree of {FILES} files …");
    // An earlier run that was interrupted may have left a part of the tree.
    let _ignored = fs::remove_dir_all(&root);
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

/// The text of the file with this number. It is the same in every run.
fn text(number: usize) -> String {
    let mut out = String::with_capacity(SNIPPETS * 40);
    let mut state = number as u64 + 1;
    let mut random = move || {
        // A shortened SplitMix64: random enough that the text does not repeat.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    };
    let snippets = SNIPPETS / 2 + random() as usize % SNIPPETS;
    for snippet in 0..snippets {
        let value = random();
        let _cannot_fail = match value % 5 {
            0 => writeln!(out, "static int register_{:x}(struct device *dev, u32 flags)", value >> 40),
            1 => writeln!(out, "\tif (dev->state & FLAG_{:X}) {{", value >> 44),
            2 => writeln!(out, "\t\treturn -E{:X};\n\t}}", value >> 52),
            3 => writeln!(out, "/* {:016x} {:016x} */", value, value.rotate_left(17)),
            _ => writeln!(out, "\twrite_reg(dev, 0x{:04x}, value{snippet});", value >> 48),
        };
        if number.is_multiple_of(FILES_PER_MATCH) && snippet % 100 == 7 {
            let _cannot_fail = writeln!(out, "\tprobe_{:x}_handler(dev);", value >> 48);
        }
    }
    out
}
