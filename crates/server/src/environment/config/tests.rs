//! Tests of the layers and errors of `environmentConfig/read`. A layer is the part of one configuration file that the
//! client has asked for. "As published" means: as the published `codex exec-server` answers. Each test has a
//! temporary directory of its own.

use super::*;

/// A temporary directory that stands for a machine: `etc` is its `/etc/codex`, and `home` is the home directory of its user.
struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(path)
    }

    fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        std::fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        std::fs::write(self.at(path), text).unwrap();
    }

    /// Replaces the configuration of the user by one that only says that these folders are trusted.
    fn trust(&self, folders: &[&str]) {
        let trusted =
            |folder: &&str| format!("[projects.'{}']\ntrust_level = 'trusted'\n", self.at(folder).display());
        self.write("home/.codex/config.toml", folders.iter().map(trusted).collect::<String>());
    }

    fn locations(&self) -> ConfigLocations {
        ConfigLocations { system: self.at("etc"), user_home: Some(self.at("home")), codex_home: None }
    }

    fn read(&self, cwd: &str, config: &[&[&str]], requirements: &[&[&str]]) -> Result<ConfigReadResult, String> {
        let owned = |paths: &[&[&str]]| -> Vec<Vec<String>> {
            paths.iter().map(|path| path.iter().map(ToString::to_string).collect()).collect()
        };
        let result = self.locations().read(&self.at(cwd), &owned(config), &owned(requirements));
        result.map_err(|error| error.to_string())
    }

    /// The text of the error of a read, without the prefix that all errors about files have.
    fn read_error(&self, cwd: &str) -> String {
        let error = self.read(cwd, &[&["a"]], &[]).unwrap_err();
        error.strip_prefix("failed to load executor-local config: ").expect(&error).to_owned()
    }

    /// The layers for `cwd` that have the key `a`: the directory of each, as an absolute path inside the machine, and
    /// its text.
    fn layers(&self, cwd: &str) -> Vec<(String, String)> {
        let result = self.read(cwd, &[&["a"]], &[]).unwrap();
        let root = PathUri::from_native(&self.at("")).unwrap();
        let relative = |layer: ConfigLayer| {
            let base = layer.base_dir.as_str().strip_prefix(root.as_str().trim_end_matches('/')).unwrap().to_owned();
            (base, layer.toml)
        };
        result.config.layers.into_iter().map(relative).collect()
    }
}

/// An element that [`Machine::layers`] is expected to return.
fn layer(base: &str, toml: &str) -> (String, String) {
    (base.to_owned(), toml.to_owned())
}

/// The published answer `result`, with its directories and its host name replaced by those of the test.
fn published_answer(machine: &Machine, result: &str) -> ConfigReadResult {
    let etc = machine.at("etc").display().to_string();
    let srv = machine.at("").display().to_string();
    let replaced = result.replace("/srv/", &srv).replace("/etc/codex", &etc);
    let mut result: ConfigReadResult = serde_json::from_str(&replaced).unwrap();
    result.hostname = host_name::of_machine();
    result
}

#[test]
fn the_answer_for_a_project_of_a_managed_machine_is_as_published() {
    let machine = Machine::new();
    machine.write("etc/config.toml", "# the machine\nmodel = 'system'\n");
    machine.write("etc/requirements.toml", "allowed_approval_policies = ['never']\nother = 1\n");
    machine.write("etc/managed_config.toml", "sandbox_mode = 'workspace-write'\n");
    let trusted = format!("[projects.'{}']\ntrust_level = 'trusted'\n", machine.at("repo").display());
    let user = "[mcp_servers.docs]\nurl = 'https://docs.example'\nheaders = {}\n";
    machine.write("home/.codex/config.toml", format!("model = 'user'\n{trusted}{user}"));
    machine.write("repo/.git/HEAD", "");
    machine.write("repo/.codex/config.toml", "model = 'repo'\nopenai_base_url = 'https://elsewhere.example'\n");
    machine.write("repo/app/.codex/config.toml", "mcp_servers = 'off'\n");
    let result = machine.read(
        "repo/app",
        &[&["model"], &["openai_base_url"], &["mcp_servers", "docs", "url"]],
        &[&["allowed_approval_policies"], &["allowed_sandbox_modes"]],
    );
    let expected = r#"{"codexHomeDir":"file:///srv/home/.codex","config":{"cloudInsertionIndex":1,"layers":[{"baseDir":"file:///etc/codex","source":"system (/etc/codex/config.toml)","toml":"model = \"system\"\n"},{"baseDir":"file:///srv/home/.codex","source":"user (/srv/home/.codex/config.toml)","toml":"model = \"user\"\n\n[mcp_servers.docs]\nurl = \"https://docs.example\"\n"},{"baseDir":"file:///srv/repo/.codex","source":"project (/srv/repo/.codex/config.toml)","toml":"model = \"repo\"\n"},{"baseDir":"file:///srv/repo/app/.codex","source":"project (/srv/repo/app/.codex/config.toml)","toml":"mcp_servers = \"off\"\n"}]},"hostname":"vm","requirements":{"cloudInsertionIndex":1,"layers":[{"baseDir":"file:///etc/codex","source":"/etc/codex/requirements.toml","toml":"allowed_approval_policies = [\"never\"]\n"},{"baseDir":"file:///etc/codex","source":"/etc/codex/managed_config.toml","toml":"allowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n"}]},"userHomeDir":"file:///srv/home"}"#;
    assert_eq!(result, Ok(published_answer(&machine, expected)));
}

#[test]
fn the_answer_for_missing_keys_is_as_published() {
    let machine = Machine::new();
    machine.write("etc/requirements.toml", "a = 1\n");
    machine.write("home/.codex/config.toml", "model = 'user'\n[mcp_servers.docs]\nurl = 'u'\n");
    let result = machine.read("elsewhere", &[&["model", "x"], &["mcp_servers", "nope"]], &[]);
    let expected = r#"{"codexHomeDir":"file:///srv/home/.codex","config":{"cloudInsertionIndex":0,"layers":[{"baseDir":"file:///srv/home/.codex","source":"user (/srv/home/.codex/config.toml)","toml":"model = \"user\"\n\n[mcp_servers]\n"}]},"hostname":"vm","requirements":{"cloudInsertionIndex":0,"layers":[]},"userHomeDir":"file:///srv/home"}"#;
    assert_eq!(result, Ok(published_answer(&machine, expected)));
}

#[test]
fn the_error_for_invalid_toml_of_a_project_is_as_published() {
    let machine = Machine::new();
    machine.trust(&["repo"]);
    machine.write("repo/.codex/config.toml", "model = [\n");
    let file = machine.at("repo/.codex/config.toml").display().to_string();
    // The column comes from the TOML parser, and may differ in other versions of the parser.
    let report = "TOML parse error at line 1, column 10\n  |\n1 | model = [\n  |          ^\n\
                  unclosed array, expected `]`\n";
    assert_eq!(machine.read_error("repo"), format!("Error parsing project config file {file}: {report}"));
}

#[test]
fn the_managed_file_is_the_last_layer_and_becomes_a_layer_of_requirements() {
    let machine = Machine::new();
    machine.write("etc/managed_config.toml", "approval_policy = 'never'\napprovals_reviewer = 'auto_review'\n");
    machine.write("home/.codex/config.toml", "approval_policy = 'on-request'\n");
    let result = machine.read("work", &[&["approval_policy"]], &[&["allowed_approvals_reviewers"]]).unwrap();
    let etc = machine.at("etc/managed_config.toml").display().to_string();
    let sources: Vec<_> = result.config.layers.iter().map(|layer| layer.source.as_str()).collect();
    let user = format!("user ({})", machine.at("home/.codex/config.toml").display());
    assert_eq!(sources, [user, format!("legacy managed_config.toml ({etc})")]);
    // Settings that the client gets from elsewhere come before all these layers.
    assert_eq!((result.config.cloud_insertion_index, result.requirements.cloud_insertion_index), (0, 0));
    assert_eq!(result.requirements.layers[0].toml, "allowed_approvals_reviewers = [\"auto_review\", \"user\"]\n");
    assert_eq!(result.requirements.layers[0].source, etc);
}

#[test]
fn only_layers_of_trusted_folders_are_returned() {
    let machine = Machine::new();
    for folder in ["repo", "repo/a", "repo/a/b"] {
        machine.write(&format!("{folder}/.codex/config.toml"), "a = 1");
    }
    machine.write("repo/.git/HEAD", "");
    assert_eq!(machine.layers("repo/a/b"), []);
    machine.trust(&["repo/a/b"]);
    assert_eq!(machine.layers("repo/a/b"), [layer("/repo/a/b/.codex", "a = 1\n")]);
    machine.trust(&["repo"]);
    let all = ["/repo/.codex", "/repo/a/.codex", "/repo/a/b/.codex"].map(|base| layer(base, "a = 1\n"));
    assert_eq!(machine.layers("repo/a/b"), all);
    assert_eq!(machine.layers("repo/a/b/not/there"), all, "the folder need not exist");
    let untrusted = format!("[projects.'{}']\ntrust_level = 'untrusted'\n", machine.at("repo/a").display());
    machine.write("etc/config.toml", untrusted);
    assert_eq!(machine.layers("repo/a/b"), [all[0].clone(), all[2].clone()]);
}

#[test]
fn a_folder_is_trusted_by_its_canonical_path_too() {
    let machine = Machine::new();
    machine.write("real/.codex/config.toml", "a = 1");
    std::os::unix::fs::symlink(machine.at("real"), machine.at("link")).unwrap();
    machine.trust(&["real"]);
    assert_eq!(machine.layers("link"), [layer("/link/.codex", "a = 1\n")]);
    machine.trust(&["link"]);
    assert_eq!(machine.layers("link"), [layer("/link/.codex", "a = 1\n")]);
    assert_eq!(machine.layers("real"), []);
}

#[test]
fn markers_decide_where_a_project_begins() {
    let machine = Machine::new();
    machine.write("top/.git/HEAD", "");
    machine.write("top/mid/package.json", "");
    for folder in ["top", "top/mid", "top/mid/low"] {
        machine.write(&format!("{folder}/.codex/config.toml"), "a = 1");
    }
    let bases = || machine.layers("top/mid/low").into_iter().map(|(base, _)| base).collect::<Vec<_>>();
    machine.trust(&["top"]);
    assert_eq!(bases(), ["/top/.codex", "/top/mid/.codex", "/top/mid/low/.codex"]);
    // All folders below the trusted git root are trusted, but the project now begins at `mid`.
    machine.write("etc/config.toml", "project_root_markers = ['package.json']");
    assert_eq!(bases(), ["/top/mid/.codex", "/top/mid/low/.codex"]);
    machine.write("etc/config.toml", "project_root_markers = []");
    assert_eq!(bases(), ["/top/mid/low/.codex"]);
    machine.write("etc/managed_config.toml", "project_root_markers = ['.git']");
    assert_eq!(bases(), ["/top/.codex", "/top/mid/.codex", "/top/mid/low/.codex"]);
    // A `.git` directory without HEAD is no marker. A `.git` file is a marker, and with it `mid` does not share the
    // trust of the git root `top`.
    std::fs::create_dir(machine.at("top/mid/.git")).unwrap();
    assert_eq!(bases().len(), 3);
    std::fs::remove_dir(machine.at("top/mid/.git")).unwrap();
    machine.write("top/mid/.git", "gitdir: ../.git/modules/mid");
    assert_eq!(bases(), [""; 0]);
}

#[test]
fn keys_that_a_project_may_not_set_are_removed() {
    let machine = Machine::new();
    machine.trust(&["repo"]);
    let keys = "openai_base_url = 1\nchatgpt_base_url = 1\napps_mcp_product_sku = 1\nresponses_api_metadata = 1\n\
        model_provider = 1\nmodel_providers = 1\nnotify = 1\nprofile = 1\nprofiles = 1\nhooks = 1\n\
        experimental_realtime_webrtc_call_base_url = 1\nexperimental_realtime_ws_base_url = 1\notel = 1\n\
        features = { respect_system_proxy = 1, other = 1 }\n\
        tui.keymap.chat = { previous_permission_mode = 1, next_permission_mode = 1, other = 1 }\n";
    machine.write("repo/.codex/config.toml", keys);
    let asked: Vec<Vec<String>> = keys.parse::<Table>().unwrap().keys().map(|key| vec![key.clone()]).collect();
    let result = machine.locations().read(&machine.at("repo"), &asked, &[]).unwrap();
    // `hooks` are removed in a linked worktree only.
    let left = "hooks = 1\n\n[features]\nother = 1\n\n[tui.keymap.chat]\nother = 1\n";
    assert_eq!(result.config.layers[0].toml.parse::<Table>().unwrap(), left.parse::<Table>().unwrap());
    machine.write("home/.codex/config.toml", keys);
    let result = machine.locations().read(&machine.at("repo"), &asked, &[]).unwrap();
    assert_eq!(
        result.config.layers[0].toml.parse::<Table>().unwrap(),
        keys.parse::<Table>().unwrap(),
        "the user may set all keys"
    );
}

#[test]
fn hooks_of_a_linked_worktree_come_from_the_main_checkout() {
    let machine = Machine::new();
    machine.write("main/.git/HEAD", "");
    machine.write("w/.git", "gitdir: ../main/.git/worktrees/w\n");
    machine.write("main/.git/worktrees/w/gitdir", machine.at("w/.git").as_os_str().as_bytes());
    machine.write("main/.git/worktrees/w/commondir", "../..\n");
    machine.write("main/.codex/config.toml", "a = 'main'\nhooks = 'main'\n");
    machine.write("w/.codex/config.toml", "a = 'w'\nhooks = 'w'\n");
    machine.write("w/sub/.codex/config.toml", "hooks = 'sub'\n");
    machine.trust(&["main"]);
    let result = machine.read("w/sub", &[&["a"], &["hooks"]], &[]).unwrap();
    let layers: Vec<_> =
        result.config.layers.iter().map(|layer| (layer.source.clone(), layer.toml.as_str())).collect();
    let source = |path: &str| format!("project ({})", machine.at(path).display());
    assert_eq!(
        layers,
        [(source("w/.codex/config.toml"), "a = \"w\"\n"), (source("main/.codex/config.toml"), "hooks = \"main\"\n")]
    );
    assert_eq!(result.config.layers[1].base_dir, PathUri::from_native(&machine.at("main/.codex")).unwrap());
    // In the main checkout, its own hooks count.
    let main = machine.read("main", &[&["a"], &["hooks"]], &[]).unwrap();
    assert_eq!(main.config.layers[0].toml, "a = \"main\"\nhooks = \"main\"\n");

    // Errors of the file in the main checkout are reported.
    machine.write("main/.codex/config.toml", "= 1");
    let file = machine.at("main/.codex/config.toml").display().to_string();
    let error = machine.read_error("w");
    assert!(error.starts_with(&format!("Error parsing project hooks config file {file}: TOML parse")), "{error}");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let not_a_file = format!("Failed to read project hooks config file {file}: path `{file}` is not a file");
    assert_eq!(machine.read_error("w"), not_a_file);
    machine.trust(&[]);
    assert_eq!(machine.layers("w"), [], "without trust, the file of the main checkout is not read");
}

#[test]
fn the_home_directory_of_the_user_is_no_project() {
    let machine = Machine::new();
    machine.write("home/.codex/config.toml", "a = 1\n");
    assert_eq!(machine.layers("home"), [layer("/home/.codex", "a = 1\n")]);
    machine.trust(&["link", "home"]);
    std::os::unix::fs::symlink(machine.at("home"), machine.at("link")).unwrap();
    assert_eq!(machine.layers("link"), []);
}

#[test]
fn a_dot_codex_that_is_not_a_directory_is_ignored() {
    let machine = Machine::new();
    machine.trust(&["work"]);
    machine.write("work/.codex", "");
    assert_eq!(machine.layers("work"), []);
}

#[test]
fn errors_about_a_file_have_the_published_text_of_its_role() {
    let large = vec![b'#'; 3 << 20];
    let limit = "file is too large to read: limit is 2097152 bytes";
    // A file, the start of errors about reading it, and the start of errors about parsing it.
    for (path, read, parse) in [
        ("etc/config.toml", "Failed to read config file FILE: ", "FILE:2:5: "),
        ("home/.codex/config.toml", "Failed to read config file FILE: ", "FILE:2:5: "),
        ("etc/managed_config.toml", "", "FILE:2:5: "),
        (
            "etc/requirements.toml",
            "Failed to read requirements file FILE: ",
            "failed to parse requirements layer FILE: TOML parse error at line 2, column 5\n",
        ),
        (
            "work/.codex/config.toml",
            "Failed to read project config file FILE: ",
            "Error parsing project config file FILE: TOML parse error at line 2, column 5\n",
        ),
    ] {
        let machine = Machine::new();
        let file = machine.at(path).display().to_string();
        let (read, parse) = (read.replace("FILE", &file), parse.replace("FILE", &file));
        let trust_by = if path.starts_with("home") { "etc/config.toml" } else { "home/.codex/config.toml" };
        let trusted = format!("[projects.'{}']\ntrust_level = 'trusted'\n", machine.at("work").display());
        machine.write(trust_by, &trusted);
        machine.write(path, "b = 1\nc = = 2\n");
        let error = machine.read_error("work");
        assert!(error.starts_with(&parse), "{path}: {error}");
        machine.write(path, b"b = 1\nc = '\xff'");
        assert_eq!(machine.read_error("work"), format!("{read}invalid utf-8 sequence of 1 bytes from index 11"));
        machine.write(path, &large);
        assert_eq!(machine.read_error("work"), format!("{read}{limit}"));
        std::fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o600), 0)
            .unwrap();
        assert_eq!(
            machine.read_error("work"),
            format!("{read}path `{file}` is not a file"),
            "reading a FIFO does not block"
        );
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("nowhere", &file).unwrap();
        assert!(machine.read("work", &[&["a"]], &[]).is_ok(), "a dangling link counts as a missing file");
    }
}

#[test]
fn the_file_of_an_untrusted_project_is_not_parsed_but_must_be_readable() {
    let machine = Machine::new();
    machine.write("work/.codex/config.toml", "a = = 1");
    assert_eq!(machine.layers("work"), []);
    let file = machine.at("work/.codex/config.toml").display().to_string();
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(
        machine.read_error("work"),
        format!("Failed to read project config file {file}: path `{file}` is not a file")
    );
}

#[test]
fn codex_home_must_be_a_directory_and_is_returned_as_a_canonical_path() {
    let machine = Machine::new();
    machine.write("there/config.toml", "a = 1");
    machine.write("file", "");
    std::os::unix::fs::symlink(machine.at("there"), machine.at("link")).unwrap();
    let read = |codex_home: &str| {
        let locations = ConfigLocations { codex_home: Some(machine.at(codex_home).into()), ..machine.locations() };
        locations.read(&machine.at("work"), &[vec!["a".into()]], &[]).map_err(|error| error.to_string())
    };
    let found = read("link").unwrap();
    assert_eq!(found.codex_home_dir, PathUri::from_native(&machine.at("there")).unwrap());
    assert_eq!(found.config.layers[0].toml, "a = 1\n");
    let points = |path: &str| format!("failed to find Codex home: CODEX_HOME points to {:?}", machine.at(path));
    assert_eq!(read("missing"), Err(format!("{}, but that path does not exist", points("missing"))));
    assert_eq!(read("file"), Err(format!("{}, but that path is not a directory", points("file"))));
}

#[test]
fn without_codex_home_and_a_home_directory_the_request_fails() {
    let machine = Machine::new();
    let nowhere = ConfigLocations { user_home: None, ..machine.locations() };
    let error = nowhere.read(&machine.at("work"), &[vec!["a".into()]], &[]).unwrap_err().to_string();
    assert!(error.starts_with("failed to find Codex home: "), "{error}");
}

#[test]
fn a_working_directory_that_is_longer_than_any_path_is_refused() {
    let machine = Machine::new();
    let error = machine.read(&"x/".repeat(1 << 20), &[&["a"]], &[]).unwrap_err();
    assert_eq!(error, "cwd has more than 4096 bytes, so no file can be reached there");
}

#[test]
fn the_size_of_all_files_together_is_limited() {
    let machine = Machine::new();
    let large = vec![b'#'; 2 << 20];
    for folder in ["a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"] {
        machine.write(&format!("{folder}/.codex/config.toml"), &large);
    }
    machine.write("a/.git", "");
    assert!(machine.read("a/b/c/d", &[&["a"]], &[]).is_ok());
    let file = machine.at("a/b/c/d/e/.codex/config.toml").display().to_string();
    let problem = "all configuration files together are limited to 8388608 bytes";
    assert_eq!(machine.read_error("a/b/c/d/e"), format!("Failed to read project config file {file}: {problem}"));
}
