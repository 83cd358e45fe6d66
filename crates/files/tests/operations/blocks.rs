//! Files in pieces.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use files::{DataExtent, Follow, open_file};

use crate::support::{World, assert_refused};

const GIB: u64 = 1 << 30;

#[test]
fn blocks_are_read_in_any_order_and_the_end_is_told() {
    let world = World::new();
    let contents: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let file = open_file(&world.file("a", &contents), Follow::Yes).unwrap();
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
fn more_room_than_asked_for_is_not_filled() {
    let world = World::new();
    let file = open_file(&world.file("a", [7; 100]), Follow::Yes).unwrap();
    let mut into = Vec::with_capacity(64 * 1024);
    assert!(!file.read_block(0, 10, &mut into).unwrap());
    assert_eq!(into, [7; 10]);
}

#[test]
fn offsets_that_no_file_can_have_are_refused() {
    let world = World::new();
    let file = open_file(&world.file("a", "a"), Follow::Yes).unwrap();
    for offset in [u64::MAX, u64::MAX - 5, i64::MAX as u64] {
        assert_refused(file.read_block(offset, 10, &mut Vec::new()), "file read offset overflowed");
    }
}

#[test]
fn what_was_opened_is_read_although_the_path_is_another_file_now() {
    let world = World::new();
    let path = world.file("a", "old");
    let file = open_file(&path, Follow::No).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, "new").unwrap();
    let mut into = Vec::new();
    assert!(file.read_block(0, 10, &mut into).unwrap());
    assert_eq!(into, b"old");
    assert_eq!(file.metadata().unwrap().links, 0);
}

#[test]
fn a_large_file_with_holes_tells_where_its_data_is() {
    let world = World::new();
    let path = world.at("sparse");
    let sparse = File::create(&path).unwrap();
    sparse.set_len(20 * GIB).unwrap();
    for at in [0, 7 * GIB, 19 * GIB] {
        sparse.write_all_at(&[1; 4096], at).unwrap();
    }
    let file = open_file(&path, Follow::Yes).unwrap();
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

    let mut into = Vec::new();
    assert!(!file.read_block(19 * GIB - 1, 3, &mut into).unwrap());
    assert_eq!(into, [0, 1, 1]);
}

#[test]
fn a_file_of_which_nothing_is_known_is_one_extent() {
    let world = World::new();
    let file = open_file(&world.file("a", [1; 10_000]), Follow::Yes).unwrap();
    assert_eq!(file.extents(10, 5).unwrap().extents, [DataExtent { offset: 10, length: 9_990 }]);
    // Files of the system do not know SEEK_DATA.
    let page = open_file("/sys/kernel/fscaps".as_ref(), Follow::Yes).unwrap();
    let size = page.metadata().unwrap().size;
    assert!(size > 0);
    assert_eq!(page.extents(1, 5).unwrap().extents, [DataExtent { offset: 1, length: size - 1 }]);
    let made_up = open_file("/proc/self/status".as_ref(), Follow::Yes).unwrap();
    assert_eq!(made_up.extents(0, 5).unwrap().extents, []);
}
