//! Checks that files which are read and written in blocks behave like byte strings, for any requests in any order,
//! and that the params of these requests survive encoding and decoding. Used by the fuzz target and by the test that
//! replays the corpus.
//!
//! An input is a sequence of requests of eight bytes each. If a request would begin with the byte 0xff, the sequence
//! ends there, and the rest of the input is JSON, which is decoded as params.

use std::collections::HashMap;
use std::fmt::Debug;
use std::path::Path;

use files::{CommitOptions, FileError, FileRoot, Follow, RegularFile, Upload, open_file};
use protocol::Base64Bytes;
use protocol::fs::{
    CloseParams, CommitParams, CreateParams, ExtentsParams, FileTime, OpenParams, ReadBlockParams, WriteBlockParams,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const REQUEST_BYTES: usize = 8;
/// How many requests of an input are used; the rest is ignored. A larger number would make a run slow without finding
/// more bugs.
const MOST_REQUESTS: usize = 64;
/// Ends the requests of an input. JSON follows.
const JSON_FOLLOWS: u8 = 0xff;
/// Most extents that one request asks for.
const MAX_EXTENTS: usize = 3;

/// Panics if the files differ from the [`BlockModel`], or if params change by encoding and decoding them.
pub(crate) fn check(bytes: &[u8]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut model = BlockModel { root: directory.path(), files: HashMap::new(), handles: HashMap::new() };
    let mut rest = bytes;
    for _ in 0..MOST_REQUESTS {
        if let [JSON_FOLLOWS, json @ ..] = rest {
            check_params(json);
            break;
        }
        let Some((request, tail)) = rest.split_first_chunk::<REQUEST_BYTES>() else { break };
        model.apply(*request);
        rest = tail;
    }
    model.check_files();
}

fn check_params(json: &[u8]) {
    check_round_trip::<OpenParams>(json);
    check_round_trip::<CreateParams>(json);
    check_round_trip::<ReadBlockParams>(json);
    check_round_trip::<WriteBlockParams>(json);
    check_round_trip::<CommitParams>(json);
    check_round_trip::<ExtentsParams>(json);
    check_round_trip::<CloseParams>(json);
}

fn check_round_trip<P: Serialize + DeserializeOwned + PartialEq + Debug>(json: &[u8]) {
    if let Ok(params) = serde_json::from_slice::<P>(json) {
        assert_eq!(over_the_wire(&params), params);
    }
}

/// Encodes and decodes params, as if a client had sent them.
fn over_the_wire<P: Serialize + DeserializeOwned>(params: &P) -> P {
    let json = serde_json::to_string(params).expect("params can be encoded");
    serde_json::from_str(&json).expect("encoded params can be decoded")
}

/// An open handle, and the contents that the model expects. `has_failed` says that a write was refused, after which
/// all further requests for the upload are refused. `is_over` says that a commit was tried, which ends an upload.
enum ModelHandle {
    File { opened: RegularFile, contents: Vec<u8> },
    Upload { upload: Upload, contents: Vec<u8>, replace: bool, name: u8, has_failed: bool, is_over: bool },
}

/// The expected result of all requests so far, as byte strings.
struct BlockModel<'a> {
    /// The directory with the real files.
    root: &'a Path,
    /// The expected contents of each file that exists, by the number in its name.
    files: HashMap<u8, Vec<u8>>,
    handles: HashMap<u8, ModelHandle>,
}

impl BlockModel<'_> {
    /// Does what a request asks for, with the real files and in the model, and compares the two.
    fn apply(&mut self, [method, handle, name, high, low, length, fill, flags]: [u8; REQUEST_BYTES]) {
        let (handle, name) = (handle % 4, name % 4);
        let offset = match flags {
            // Offsets that no file has.
            0xfe => u64::MAX - u64::from(low),
            0xff => i64::MAX as u64 - u64::from(low),
            _ => u64::from(high) << 8 | u64::from(low),
        };
        let length = usize::from(length) * if flags & 1 == 0 { 1 } else { 64 };
        match method % 7 {
            0 => self.open(handle, name),
            1 => self.create(handle, name, flags & 2 == 0),
            2 => self.read(handle, offset, length),
            3 => self.write(handle, offset, &vec![fill; length]),
            4 => self.commit(handle, (flags & 4 != 0).then_some(offset), fill),
            5 => self.extents(handle, offset),
            _ => drop(self.handles.remove(&handle)),
        }
    }

    fn path(&self, name: u8) -> std::path::PathBuf {
        self.root.join(format!("file {name}"))
    }

    fn uri(&self, name: u8) -> protocol::PathUri {
        protocol::PathUri::from_native(&self.path(name)).expect("the directory is absolute")
    }

    fn open(&mut self, handle: u8, name: u8) {
        let path = self.uri(name);
        let params = over_the_wire(&OpenParams { handle_id: handle.to_string(), path, sandbox: None });
        let native = params.path.to_native().expect("the path is native");
        match (open_file(FileRoot::host(), &native, Follow::Yes), self.files.get(&name)) {
            (Ok(opened), Some(contents)) => {
                let contents = contents.clone();
                self.handles.insert(handle, ModelHandle::File { opened, contents });
            }
            (Err(error), None) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
            (opened, _) => panic!("the file exists only on disk or only in the model: {opened:?}"),
        }
    }

    fn create(&mut self, handle: u8, name: u8, replace: bool) {
        let path = self.uri(name);
        let params = over_the_wire(&CreateParams {
            handle_id: handle.to_string(),
            path,
            replace,
            follow_symlinks: true,
            sandbox: None,
        });
        let native = params.path.to_native().expect("the path is native");
        match Upload::create(FileRoot::host(), &native, params.replace, Follow::Yes) {
            Ok(upload) => {
                assert!(replace || !self.files.contains_key(&name));
                let upload = ModelHandle::Upload {
                    upload,
                    contents: Vec::new(),
                    replace,
                    name,
                    has_failed: false,
                    is_over: false,
                };
                self.handles.insert(handle, upload);
            }
            Err(error) => {
                assert!(!replace && self.files.contains_key(&name), "{error}");
                assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
            }
        }
    }

    fn read(&mut self, handle: u8, offset: u64, length: usize) {
        let Some(ModelHandle::File { opened, contents }) = self.handles.get(&handle) else { return };
        let params = over_the_wire(&ReadBlockParams { handle_id: handle.to_string(), offset, len: length as u64 });
        // `read_block` keeps the bytes that are there already, and returns whether the file ended before `length`
        // bytes.
        let mut block = vec![1];
        let read = opened.read_block(params.offset, length, &mut block);
        if overflows(offset, length) {
            return assert_refused(&read);
        }
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(contents.len());
        let to = from.saturating_add(length).min(contents.len());
        assert_eq!(read.expect("a file is read"), to - from < length);
        assert_eq!((block[0], &block[1..]), (1, &contents[from..to]));
    }

    fn write(&mut self, handle: u8, offset: u64, data: &[u8]) {
        let Some(ModelHandle::Upload { upload, contents, has_failed, is_over, .. }) = self.handles.get_mut(&handle)
        else {
            return;
        };
        let chunk = Base64Bytes(data.to_vec());
        let params = over_the_wire(&WriteBlockParams { handle_id: handle.to_string(), offset, chunk });
        let written = upload.write_block(params.offset, &params.chunk.0);
        *has_failed |= *is_over || overflows(offset, data.len());
        if *has_failed {
            return assert_refused(&written);
        }
        written.expect("a block is written");
        let from = usize::try_from(offset).expect("an offset that does not overflow fits usize");
        if !data.is_empty() {
            contents.resize(contents.len().max(from + data.len()), 0);
            contents[from..from + data.len()].copy_from_slice(data);
        }
    }

    /// The new mode and modification time of the file are derived from `attributes`.
    fn commit(&mut self, handle: u8, size: Option<u64>, attributes: u8) {
        let Some(ModelHandle::Upload { upload, contents, replace, name, has_failed, is_over }) =
            self.handles.get_mut(&handle)
        else {
            return;
        };
        // A larger size may exceed what the file system allows.
        let size = size.filter(|size| *size <= 1 << 20);
        let mtime = FileTime { secs: i64::from(attributes), nanos: u32::from(attributes) };
        let mode = 0o600 | u32::from(attributes) & 0o177;
        let params = over_the_wire(&CommitParams {
            handle_id: handle.to_string(),
            size,
            mode: Some(mode),
            mode_if_new: None,
            mtime: Some(mtime),
            sync: false,
        });
        let options = CommitOptions {
            size: params.size,
            mode: params.mode,
            mode_if_new: params.mode_if_new,
            mtime: params.mtime.map(|time| (time.secs, time.nanos)),
            sync: params.sync,
        };
        let committed = upload.commit(&options);
        if std::mem::replace(is_over, true) || *has_failed {
            return assert_refused(&committed);
        }
        if !*replace && self.files.contains_key(name) {
            let error = committed.expect_err("nothing is replaced");
            return assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
        }
        committed.expect("an upload is committed");
        let mut contents = std::mem::take(contents);
        if let Some(size) = size {
            contents.resize(usize::try_from(size).expect("it is small"), 0);
        }
        let name = *name;
        self.files.insert(name, contents);
        let found = files::metadata(FileRoot::host(), &self.path(name), Follow::No).expect("the file exists");
        assert_eq!((found.mode, found.modified_seconds, found.modified_nanos), (mode, mtime.secs, mtime.nanos));
    }

    fn extents(&mut self, handle: u8, offset: u64) {
        let Some(ModelHandle::File { opened, contents }) = self.handles.get(&handle) else { return };
        let params = over_the_wire(&ExtentsParams { handle_id: handle.to_string(), offset });
        let found = opened.extents(params.offset, MAX_EXTENTS).expect("the extents are known");
        assert_eq!(found.size, contents.len() as u64);
        let mut at = offset;
        for extent in &found.extents {
            assert!(extent.offset >= at && extent.length > 0 && extent.end() <= found.size, "{found:?}");
            assert!(is_zero(contents, at, extent.offset), "there is data between extents: {found:?}");
            at = extent.end();
        }
        assert!(found.more || is_zero(contents, at, found.size), "there is data after the last extent: {found:?}");
    }

    fn check_files(&self) {
        let entries = std::fs::read_dir(self.root).expect("the directory is there");
        assert_eq!(
            entries.count(),
            self.files.len(),
            "an upload is visible before its commit, or its temporary file is left"
        );
        for (name, contents) in &self.files {
            assert_eq!(std::fs::read(self.path(*name)).ok().as_ref(), Some(contents));
        }
    }
}

/// Whether a block ends beyond the largest offset that a file can have.
fn overflows(offset: u64, length: usize) -> bool {
    offset.checked_add(length as u64).is_none_or(|end| i64::try_from(end).is_err())
}

fn is_zero(contents: &[u8], from: u64, to: u64) -> bool {
    let clamp = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(contents.len());
    from >= to || contents[clamp(from)..clamp(to)].iter().all(|byte| *byte == 0)
}

fn assert_refused<T: Debug>(result: &Result<T, FileError>) {
    let kind = result.as_ref().map_err(FileError::kind);
    assert!(matches!(kind, Err(std::io::ErrorKind::InvalidInput)), "{result:?}");
}
