//! Machines that were cloned from one image have the same paths, and directories with the same creation times. `cp`
//! must not take two such machines for one machine. If one machine has two names, `cp` must notice that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::support::{bare_command, text_and_code, wait_for_output};

/// Two environments (machines with a server), `one` and `two`. Both run on this machine, but look like two machines,
/// each with a directory `/srv/app`.
struct Clones {
    folder: tempfile::TempDir,
}

impl Clones {
    /// The directory `root_of_one` of the test is `/srv/app` in the environment `one`, and `root_of_two` in `two`.
    fn new(root_of_one: &str, root_of_two: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clones = Self { folder };
        let toml: String = [("one", root_of_one), ("two", root_of_two)]
            .map(|(id, directory)| {
                format!(
                    "[[environments]]\nid = \"{id}\"\nssh = \"{id}\"\nprogram = \"{}\"\nlocal_root = \"/srv/app\"\nremote_root = \"{}\"\n",
                    testkit::binary().display(),
                    clones.path(directory).display()
                )
            })
            .concat();
        fs::write(clones.path("environments.toml"), toml).unwrap();
        fs::create_dir(clones.path("bin")).unwrap();
        // A script instead of ssh. It runs the last argument of `ssh … HOST COMMAND` in a shell on this machine.
        fs::write(clones.path("bin/ssh"), "#!/bin/sh\nfor command; do :; done\nexec sh -c \"$command\"\n").unwrap();
        fs::set_permissions(clones.path("bin/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        clones
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `cp` and returns its stderr and exit code.
    async fn cp(&self, args: &[&str]) -> (String, Option<i32>) {
        let inherited = std::env::var_os("PATH").unwrap();
        let folders = std::iter::once(self.path("bin")).chain(std::env::split_paths(&inherited));
        let mut command = bare_command();
        command.arg("cp").args(args).env("EXEC_SERVER_HOME", self.folder.path());
        command.env("PATH", std::env::join_paths(folders).unwrap());
        let (_, stderr, code) = text_and_code(&wait_for_output(command.spawn().unwrap()).await);
        (stderr, code)
    }
}

/// Creation time of a directory, in milliseconds since 1970.
fn birth_ms(path: &Path) -> u128 {
    fs::metadata(path).unwrap().created().unwrap().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// Creates both directories in the same millisecond.
fn make_twins(one: &Path, two: &Path) {
    loop {
        fs::create_dir(one).unwrap();
        fs::create_dir(two).unwrap();
        if birth_ms(one) == birth_ms(two) {
            return;
        }
        fs::remove_dir(one).unwrap();
        fs::remove_dir(two).unwrap();
    }
}

#[tokio::test]
async fn copies_between_clones_of_one_image_are_not_taken_for_copies_onto_themselves() {
    let clones = Clones::new("first", "second");
    make_twins(&clones.path("first"), &clones.path("second"));
    fs::write(clones.path("first/file"), "text").unwrap();
    // To compare the directories, `cp` makes a directory in one of them for a moment.
    assert_eq!(clones.cp(&["-r", "one:/srv/app/.", "two:/srv/app"]).await, (String::new(), Some(0)));
    assert_eq!(fs::read_to_string(clones.path("second/file")).unwrap(), "text");
    let names: Vec<_> =
        fs::read_dir(clones.path("second")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"], "nothing else is left in the directory");
}

#[tokio::test]
async fn a_copy_onto_itself_is_noticed_although_the_machine_has_two_names() {
    let clones = Clones::new("only", "only");
    fs::create_dir(clones.path("only")).unwrap();
    fs::write(clones.path("only/file"), "text").unwrap();
    let (stderr, code) = clones.cp(&["-r", "one:/srv/app/.", "two:/srv/app"]).await;
    assert_eq!(
        (stderr.as_str(), code),
        ("exec-server: left out one:/srv/app/.: it is the target of this copy\n", Some(1))
    );
    let names: Vec<_> = fs::read_dir(clones.path("only")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"], "nothing else is left in the directory");
}
