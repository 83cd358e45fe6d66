//! Tests of reading an open file block by block, and of finding its data extents, which are the parts between holes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use files::{DataExtent, FileRoot, Follow, open_file};

use crate::support::{TestDirectory, assert_refused};

const GIB: u64 = 1 << 30;

#[test]
fn blocks_can_be_read_in_any_order_and_report_the_end_of_the_file() {
    let test_dir = TestDirectory::new();
    let contents: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let file = open_file(FileRoot::host(), &test_dir.file("a", &contents), Follow::Yes).unwrap();
    assert_eq!(file.metadata().unwrap().size, 10_000);
    let read = |offset, len| {
        let mut into = b"before".to_vec();
        let eof = file.read_block(offset, len, &mut into).unwrap();
        (into.split_off(6), eof)
    };
    assert_eq!(read(9_000, 1_000), (contents[9_000..].to_vec(), false));
    assert_eq!(read(10_000, 1), (vec![], true));
    assert_eq!(read(0, 10_001), (contents.clone(), true));
    assert_eq!(read(5, 7), (contents[5..12].to_vec(), false));
    assert_eq!(read(1 << 40, 7), (vec![], true));
}

#[test]
fn a_buffer_with_spare_capacity_gets_only_the_bytes_asked_for() {
    let test_dir = TestDirectory::new();
    let file = open_file(FileRoot::host(), &test_dir.file("a", [7; 100]), Follow::Yes).unwrap();
    let mut into = Vec::with_capacity(64 * 1024);
    assert!(!file.read_block(0, 10, &mut into).unwrap());
    assert_eq!(into, [7; 10]);
}

#[test]
fn offsets_that_no_file_can_have_are_refused() {
    let test_dir = TestDirectory::new();
    let file = open_file(FileRoot::host(), &test_dir.file("a", "a"), Follow::Yes).unwrap();
    for offset in [u64::MAX, u64::MAX - 5, i64::MAX as u64] {
        assert_refused(file.read_block(offset, 10, &mut Vec::new()), "file read offset overflowed");
    }
}

#[test]
fn an_open_file_can_be_read_after_its_path_was_replaced() {
    let test_dir = TestDirectory::new();
    let path = test_dir.file("a", "old");
    let file = open_file(FileRoot::host(), &path, Follow::No).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "new").unwrap();
    let mut into = Vec::new();
    assert!(file.read_block(0, 10, &mut into).unwrap());
    assert_eq!(into, b"old");
    assert_eq!(file.metadata().unwrap().links, 0);
}

/// Creates a sparse file of 20 GiB with 4096 bytes of data at 0, 7 and 19 GiB.
fn sparse_file(test_dir: &TestDirectory) -> PathBuf {
    let path = test_dir.at("sparse");
    let sparse = File::create(&path).unwrap();
    sparse.set_len(20 * GIB).unwrap();
    for at in [0, 7 * GIB, 19 * GIB] {
        sparse.write_all_at(&[1; 4096], at).unwrap();
    }
    path
}

#[test]
fn the_extents_of_a_sparse_file_cover_its_data_and_can_be_listed_in_parts() {
    let test_dir = TestDirectory::new();
    let file = open_file(FileRoot::host(), &sparse_file(&test_dir), Follow::Yes).unwrap();
    let covers = |extents: &[DataExtent], at: u64| extents.iter().any(|e| e.offset <= at && at + 4096 <= e.end());

    let all = file.extents(0, 10).unwrap();
    assert_eq!((all.size, all.more, all.extents.len()), (20 * GIB, false, 3));
    assert!([0, 7 * GIB, 19 * GIB].into_iter().all(|at| covers(&all.extents, at)));
    assert!(all.extents.iter().map(|extent| extent.length).sum::<u64>() < GIB);

    let first = file.extents(0, 2).unwrap();
    assert_eq!((first.more, &first.extents[..]), (true, &all.extents[..2]));
    let rest = file.extents(first.extents[1].end(), 2).unwrap();
    assert_eq!((rest.more, &rest.extents[..]), (false, &all.extents[2..]));
    assert_eq!(file.extents(20 * GIB, 2).unwrap().extents, []);
}

#[test]
fn a_hole_is_read_as_zeros() {
    let test_dir = TestDirectory::new();
    let file = open_file(FileRoot::host(), &sparse_file(&test_dir), Follow::Yes).unwrap();
    let mut into = Vec::new();
    assert!(!file.read_block(19 * GIB - 1, 3, &mut into).unwrap());
    assert_eq!(into, [0, 1, 1]);
}

#[test]
fn a_file_without_holes_is_one_extent() {
    let test_dir = TestDirectory::new();
    let file = open_file(FileRoot::host(), &test_dir.file("a", [1; 10_000]), Follow::Yes).unwrap();
    assert_eq!(file.extents(10, 5).unwrap().extents, [DataExtent { offset: 10, length: 9_990 }]);
}

#[test]
fn a_file_without_information_about_holes_is_one_extent_of_its_reported_size() {
    // Files of sysfs do not support `SEEK_DATA`.
    let sysfs_file = open_file(FileRoot::host(), "/sys/kernel/fscaps".as_ref(), Follow::Yes).unwrap();
    let size = sysfs_file.metadata().unwrap().size;
    assert!(size > 0);
    assert_eq!(sysfs_file.extents(1, 5).unwrap().extents, [DataExtent { offset: 1, length: size - 1 }]);
    let proc_file = open_file(FileRoot::host(), "/proc/self/status".as_ref(), Follow::Yes).unwrap();
    assert_eq!(proc_file.extents(0, 5).unwrap().extents, [], "files of procfs report the size 0");
}
