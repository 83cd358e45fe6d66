//! Tests of the variables and the file that configure environments. The home directories are made by the tests.

use std::fs;

use tempfile::TempDir;

use super::home_and_variables::{CODEX_HOME, EXEC_SERVER_HOME, RELAY_ACCOUNT, XDG_CONFIG_HOME};
use super::*;

fn load(variables: &HomeAndVariables) -> Result<Environments, String> {
    Environments::load(variables).map_err(|error| error.to_string())
}

fn parse(text: &str) -> Result<Environments, String> {
    Environments::from_toml(text, Path::new("/conf/environments.toml")).map_err(|error| error.to_string())
}

fn url(url: &str) -> EnvironmentLocation {
    EnvironmentLocation::Url { url: url.to_owned(), ca_file: None, token_file: None }
}

fn local_alone() -> Environments {
    Environments::only(EnvironmentSpec::local())
}

fn remote_alone(address: &str) -> Environments {
    Environments::only(EnvironmentSpec::new("remote", url(address)))
}

/// Writes an `environments.toml` with one environment of this id into the directory.
fn write_configuration(directory: &Path, id: &str) {
    fs::create_dir_all(directory).unwrap();
    let text = format!("[[environments]]\nid = \"{id}\"\nurl = \"ws://h\"\n");
    fs::write(directory.join("environments.toml"), text).unwrap();
}

#[test]
fn without_a_file_and_a_url_this_machine_is_the_only_environment() {
    assert_eq!(load(&HomeAndVariables::default()), Ok(local_alone()));
    assert_eq!(local_alone().default_environment().unwrap().location, EnvironmentLocation::Local);
}

#[test]
fn a_variable_with_a_blank_url_counts_as_not_set() {
    for blank in ["", " ", "\t\n"] {
        assert_eq!(load(&HomeAndVariables::default().with_variable(CODEX_EXEC_SERVER_URL, blank)), Ok(local_alone()));
    }
}

#[test]
fn the_url_none_in_upper_or_lower_case_means_no_environment_at_all() {
    for none in ["none", "NONE", " None "] {
        let environments = load(&HomeAndVariables::default().with_variable(CODEX_EXEC_SERVER_URL, none)).unwrap();
        assert_eq!(environments, Environments::default());
        assert!(environments.default_environment().is_none() && !environments.includes_local());
    }
}

#[test]
fn a_url_in_a_variable_names_the_only_environment_which_is_the_default() {
    let environments = load(&HomeAndVariables::default().with_variable(CODEX_EXEC_SERVER_URL, "ws://h:1")).unwrap();
    assert_eq!(environments, remote_alone("ws://h:1"));
    assert_eq!(environments.default_environment().unwrap().id, "remote");
    assert!(!environments.includes_local());
}

#[test]
fn space_around_a_url_is_removed() {
    let environments = load(&HomeAndVariables::default().with_variable(CODEX_EXEC_SERVER_URL, "  wss://h/x?y=z \n"));
    assert_eq!(environments, Ok(remote_alone("wss://h/x?y=z")));
}

#[test]
fn exec_server_url_wins_over_codex_exec_server_url_unless_the_former_is_blank() {
    let both = HomeAndVariables::default()
        .with_variable(CODEX_EXEC_SERVER_URL, "ws://codex")
        .with_variable(EXEC_SERVER_URL, "unix:///exec-server");
    assert_eq!(load(&both), Ok(remote_alone("unix:///exec-server")));
    assert_eq!(load(&both.with_variable(EXEC_SERVER_URL, " ")), Ok(remote_alone("ws://codex")));
}

#[test]
fn a_url_of_an_unsupported_form_is_refused_with_the_name_of_its_variable() {
    for text in ["http://h", "ws://", "h:1", "unix://relative", "ws://h:port", "WS://h"] {
        let refused = load(&HomeAndVariables::default().with_variable(EXEC_SERVER_URL, text)).unwrap_err();
        assert_eq!(refused, "EXEC_SERVER_URL: the URL must be `ws://HOST`, `wss://HOST` or `unix:///PATH`", "{text}");
    }
}

#[test]
fn relay_variables_name_the_only_environment_even_if_there_is_a_file_and_a_url() {
    let home = TempDir::new().unwrap();
    write_configuration(home.path(), "x");
    let variables = HomeAndVariables::default().with_variable(CODEX_HOME, home.path());
    let values = RELAY_VARIABLES.into_iter().zip([" https://service.example/ ", " env-1", "token-1\n"]);
    let variables = variables.with_variable(EXEC_SERVER_URL, "ws://h");
    let all = values.fold(variables, |all, (name, value)| all.with_variable(name, value));
    let location = |account: Option<&str>| RemoteLocation {
        service: "https://service.example".to_owned(),
        environment_id: "env-1".to_owned(),
        pinned_key: None,
        ca_file: None,
        credential: RemoteCredential::Token { token: "token-1".to_owned(), account: account.map(str::to_owned) },
    };
    let expected = |account| Environments::only(EnvironmentSpec::remote(REMOTE, location(account)));
    assert_eq!(load(&all), Ok(expected(None)));
    assert_eq!(load(&all.clone().with_variable(RELAY_ACCOUNT, "account-1")), Ok(expected(Some("account-1"))));
    for (name, value) in RELAY_VARIABLES.into_iter().zip(["ws://h", "a\nb", "two words"]) {
        let refused = load(&all.clone().with_variable(name, value)).unwrap_err();
        assert!(refused.starts_with(name) && !refused.contains(value), "{refused}");
    }
}

#[test]
fn one_or_two_relay_variables_are_refused_and_blank_ones_count_as_not_set() {
    let one = HomeAndVariables::default().with_variable(RELAY_VARIABLES[1], "env-1");
    assert_eq!(
        load(&one.clone().with_variable(RELAY_VARIABLES[0], " ")).unwrap_err(),
        "CODEX_EXEC_SERVER_NOISE_REGISTRY_URL and CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN are not set, and an environment \
         behind a relay needs the registry URL, the environment id and the token; set all three \
         CODEX_EXEC_SERVER_NOISE_ variables or none"
    );
    let two = one.with_variable(RELAY_VARIABLES[0], "http://r");
    assert!(load(&two).unwrap_err().starts_with("CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN is not set"));
    let blank =
        RELAY_VARIABLES.into_iter().fold(HomeAndVariables::default(), |all, name| all.with_variable(name, " "));
    assert_eq!(load(&blank), Ok(local_alone()));
}

#[test]
fn debug_output_shows_the_names_of_variables_and_not_their_values() {
    let shown = format!("{:?}", HomeAndVariables::default().with_variable(RELAY_VARIABLES[2], "hunter2"));
    assert!(shown.contains(RELAY_VARIABLES[2]) && !shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_file_in_codex_home_replaces_the_url() {
    let home = TempDir::new().unwrap();
    write_configuration(home.path(), "box");
    let variables = HomeAndVariables::default().with_variable(CODEX_HOME, home.path());
    let environments = load(&variables.with_variable(EXEC_SERVER_URL, "ws://h")).unwrap();
    assert_eq!(environments.entries.keys().collect::<Vec<_>>(), ["box", "local"]);
}

#[test]
fn without_a_file_the_url_is_used() {
    let home = TempDir::new().unwrap();
    // There is no file below `/dev/null`, which is not a directory.
    let variables = HomeAndVariables::default().with_variable(CODEX_HOME, home.path()).with_home("/dev/null");
    assert_eq!(load(&variables.with_variable(CODEX_EXEC_SERVER_URL, "ws://h")), Ok(remote_alone("ws://h")));
}

#[test]
fn the_first_file_that_exists_is_used() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let variables = HomeAndVariables::default()
        .with_home(at("home"))
        .with_variable(EXEC_SERVER_HOME, at("exec-server-home"))
        .with_variable(CODEX_HOME, at("codex-home"));
    // All ids of the files come before `local` in the order of the alphabet.
    let first_id = |variables: &HomeAndVariables| load(variables).unwrap().entries.into_keys().next().unwrap();
    assert_eq!(first_id(&variables), "local");
    for (directory, id) in [
        ("home/.codex", "e-codex"),
        ("home/.config/exec-server", "d-config"),
        ("codex-home", "b-codex-home"),
        ("exec-server-home", "a-exec-server-home"),
    ] {
        write_configuration(&at(directory), id);
        assert_eq!(first_id(&variables), id);
    }
    write_configuration(&at("xdg/exec-server"), "c-xdg");
    let xdg = HomeAndVariables::default().with_home(at("home")).with_variable(XDG_CONFIG_HOME, at("xdg"));
    assert_eq!(first_id(&xdg), "c-xdg");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join("environments.toml")).unwrap();
    let refused = load(&HomeAndVariables::default().with_variable(CODEX_HOME, home.path())).unwrap_err();
    assert!(refused.starts_with(&format!("cannot read {}/environments.toml: ", home.path().display())), "{refused}");
}

/// Loads the configuration of a new home directory. `make` gets the path of its `environments.toml` and makes a file
/// there, regular or not.
fn load_from(make: impl FnOnce(&Path)) -> Result<Environments, String> {
    let home = TempDir::new().unwrap();
    let path = home.path().join("environments.toml");
    make(&path);
    let shown = home.path().display().to_string();
    load(&HomeAndVariables::default().with_variable(CODEX_HOME, home.path()))
        .map_err(|text| text.replace(&shown, "~"))
}

#[test]
fn only_a_regular_file_of_limited_size_or_a_link_to_one_is_read_and_a_fifo_does_not_block() {
    let fifo = load_from(|path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    });
    assert_eq!(fifo.unwrap_err(), "cannot read ~/environments.toml: path `~/environments.toml` is not a file");
    let endless = load_from(|path| std::os::unix::fs::symlink("/dev/zero", path).unwrap());
    assert_eq!(endless.unwrap_err(), "cannot read ~/environments.toml: path `~/environments.toml` is not a file");
    let comment = "# comment\n".repeat(3 << 20 >> 3);
    let large = load_from(|path| fs::write(path, &comment).unwrap());
    assert_eq!(
        large.unwrap_err(),
        "cannot read ~/environments.toml: file is too large to read: limit is 2097152 bytes"
    );
    let just_fits = load_from(|path| fs::write(path, &comment[..2 << 20]).unwrap());
    assert_eq!(just_fits, Ok(local_alone()));
    let linked = load_from(|path| {
        fs::write(path.with_extension("real"), "include_local = true").unwrap();
        std::os::unix::fs::symlink("environments.real", path).unwrap();
    });
    assert_eq!(linked, Ok(local_alone()));
}

#[test]
fn a_link_that_leads_nowhere_is_an_error() {
    let refused = load_from(|path| std::os::unix::fs::symlink("nowhere", path).unwrap());
    assert_eq!(refused.unwrap_err(), "cannot read ~/environments.toml: it is a link to a file that does not exist");
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_field_and_not_shown() {
    let text = "must be a string";
    let entry = "[[environments]]\nid = \"a\"\n";
    for (fields, line, words) in [
        (format!("{entry}program = \"p\"\nargs = \"--token=hunter2\""), 4, "`args` must be a list of strings"),
        (format!("{entry}program = \"p\"\nargs = [\"a\", [\"hunter2\"]]"), 4, "`args` must be a list of strings"),
        (format!("{entry}program = \"p\"\nenv = \"T=hunter2\""), 4, "`env` must be a table of strings"),
        (format!("{entry}program = \"p\"\nenv = {{ T = [\"hunter2\"] }}"), 4, "`env` must be a table of strings"),
        (format!("{entry}url = [\"ws://hunter2@h\"]"), 3, &format!("`url` {text}")),
        (
            format!("{entry}url = \"ws://h\"\nconnect_timeout_sec = \"hunter2\""),
            4,
            "`connect_timeout_sec` must be a number",
        ),
        ("default = [\"hunter2\"]".to_owned(), 1, &format!("`default` {text}")),
        ("include_local = \"hunter2\"".to_owned(), 1, "`include_local` must be `true` or `false`"),
        ("environments = \"hunter2\"".to_owned(), 1, "`environments` must be a list of tables"),
        ("environments = [\"hunter2\"]".to_owned(), 1, "`environments` must be a list of tables"),
        (
            format!("{entry}program = \"p\"\nenv = {{ \"T=hunter2\" = \"\" }}"),
            4,
            "environment `a`: `env` has a variable whose name is empty or contains `=`",
        ),
    ] {
        assert_eq!(parse(&fields).unwrap_err(), format!("/conf/environments.toml:{line}: {words}"));
    }
    for broken in ["url = \"wss://me:hunter2@h\n", "args = [\"hunter2\" \"b\"]", "url = hunter2", "a = 1 hunter2"] {
        let refused = parse(&format!("{entry}{broken}")).unwrap_err();
        assert!(!refused.contains("hunter2"), "{refused}");
    }
}

#[test]
fn a_file_adds_environments_beside_this_machine_and_names_the_default() {
    let text = r#"
        default = "ssh-dev"
        [[environments]]
        id = "devbox"
        url = " ws://10.0.0.5:8765 "
        [[environments]]
        id = "ssh-dev"
        program = "ssh"
        args = ["dev", "codex exec-server --listen stdio"]
        cwd = "/w"
        env = { CODEX_LOG = "debug" }
    "#;
    let environments = parse(text).unwrap();
    let location = EnvironmentLocation::Program {
        program: "ssh".into(),
        args: vec!["dev".into(), "codex exec-server --listen stdio".into()],
        env: BTreeMap::from([("CODEX_LOG".into(), "debug".into())]),
        cwd: Some("/w".into()),
    };
    let specs = [
        EnvironmentSpec::new("devbox", url("ws://10.0.0.5:8765")),
        EnvironmentSpec::local(),
        EnvironmentSpec::new("ssh-dev", location),
    ];
    assert!(environments.entries.values().eq(&specs), "{environments:#?}");
    assert_eq!(environments.default_environment(), Some(&specs[2]));
}

#[test]
fn without_default_this_machine_is_the_default() {
    assert_eq!(parse("").unwrap(), local_alone());
}

#[test]
fn the_default_none_in_upper_or_lower_case_means_no_default() {
    for text in ["default = \"none\"", "default = \"NONE\""] {
        let environments = parse(text).unwrap();
        assert!(environments.default.is_none() && environments.includes_local());
    }
}

#[test]
fn a_file_that_excludes_this_machine_and_names_no_default_has_no_default() {
    let environments = parse("include_local = false\n[[environments]]\nid = \"a\"\nurl = \"ws://h\"").unwrap();
    assert!(environments.default.is_none() && !environments.includes_local());
    assert_eq!(environments.entries.len(), 1);
}

#[test]
fn the_default_local_is_refused_where_this_machine_is_excluded() {
    assert_eq!(
        parse("include_local = false\ndefault = \"local\"").unwrap_err(),
        "/conf/environments.toml:2: the default environment `local` is excluded by `include_local = false`"
    );
}

#[test]
fn an_unknown_default_is_refused() {
    assert_eq!(
        parse("\ndefault = \"x\"").unwrap_err(),
        "/conf/environments.toml:2: the default environment `x` is not configured"
    );
}

#[test]
fn invalid_environments_are_refused_with_the_problem_and_its_line() {
    let not_one_location = "give `url`, `remote`, `program`, `ssh`, or `ssh` together with `program`";
    let bad_url = "the URL must be `ws://HOST`, `wss://HOST` or `unix:///PATH`";
    let host = "`ssh` must name a host, without spaces and without `-` at its beginning";
    for (fields, line, words) in [
        ("", 1, not_one_location),
        ("url = \"ws://h\"\nprogram = \"p\"", 1, not_one_location),
        ("url = \"ws://h\"\nssh = \"h\"", 1, not_one_location),
        ("url = \"http://h\"", 3, bad_url),
        ("url = \" \"", 3, bad_url),
        ("program = \" \"", 3, "`program` must not be empty"),
        ("program = \"a\\u0000\"", 3, "`program` must not contain the character NUL"),
        ("program = \"p\"\nargs = [\"a\\u0000\"]", 4, "`args` must not contain the character NUL"),
        ("program = \"p\"\nenv = { \"a=b\" = \"\" }", 4, "`env` has a variable whose name is empty or contains `=`"),
        ("url = \"ws://h\"\nargs = []", 4, "`args` has a meaning only beside `program`"),
        ("url = \"ws://h\"\nenv = {}", 4, "`env` has a meaning only beside `program`"),
        ("url = \"ws://h\"\ncwd = \"/\"", 4, "`cwd` has a meaning only beside `program`"),
        ("program = \"p\"\nconnect_timeout_sec = 1", 4, "`connect_timeout_sec` has a meaning only beside `url`"),
        ("program = \"p\"\ntoken_file = \"t\"", 4, "`token_file` has a meaning only beside `url`"),
        ("url = \"ws://h\"\nca_file = \"c\"", 4, "`ca_file` has a meaning only beside `url = \"wss://…\"`"),
        (
            "url = \"unix:///s\"\ntoken_file = \"t\"",
            4,
            "`token_file` has a meaning only beside `url = \"ws://…\" or \"wss://…\"`",
        ),
        ("program = \"p\"\nsilence_timeout_sec = 1", 4, "`silence_timeout_sec` has a meaning only beside `url`"),
        (
            "url = \"unix:///s\"\nsilence_timeout_sec = 1",
            4,
            "`silence_timeout_sec` has a meaning only beside `url = \"ws://…\" or \"wss://…\"`",
        ),
        (
            "url = \"ws://h\"\nconnect_timeout_sec = 0",
            4,
            "`connect_timeout_sec` must be a positive number of seconds",
        ),
        (
            "url = \"ws://h\"\nconnect_timeout_sec = nan",
            4,
            "`connect_timeout_sec` must be a positive number of seconds",
        ),
        (
            "program = \"p\"\ninitialize_timeout_sec = -1.5",
            4,
            "`initialize_timeout_sec` must be a positive number of seconds",
        ),
        (
            "program = \"p\"\ninitialize_timeout_sec = inf",
            4,
            "`initialize_timeout_sec` must be a positive number of seconds",
        ),
        ("ssh = \"-oProxyCommand=x\"", 3, host),
        ("ssh = \"\"", 3, host),
        ("ssh = \"h\"\nlocal_root = \"/a\"", 4, "`local_root` and `remote_root` must be given together"),
        ("ssh = \"h\"\nlocal_root = \"/a\"\nremote_root = \"b\"", 5, "`remote_root` must be an absolute path"),
        ("remote = \"ws://h\"", 3, "the URL of a service must be `https://HOST` or `http://HOST`"),
        (
            "remote = \"https://h\"\npinned_key = \"SHA256:short\"",
            4,
            "the key must be a fingerprint `SHA256:…`, as `exec-server env show` prints it",
        ),
        ("url = \"ws://h\"\npinned_key = \"x\"", 4, "`pinned_key` has a meaning only beside `remote`"),
        ("remote = \"https://h\"\nargs = []", 4, "`args` has a meaning only beside `program`"),
        ("ssh = \"h\"\nargs = []", 4, "`args` has a meaning only beside `program`"),
    ] {
        let text = format!("[[environments]]\nid = \"x\"\n{fields}\n");
        let expected = format!("/conf/environments.toml:{line}: environment `x`: {words}");
        assert_eq!(parse(&text).unwrap_err(), expected, "{fields}");
    }
}

#[test]
fn ids_that_cannot_be_used_are_refused() {
    for (id, words) in [
        ("", "`id` must not be empty"),
        (" a", "environment id ` a` may have only ASCII letters, digits, `-` and `_`"),
        ("ä", "environment id `ä` may have only ASCII letters, digits, `-` and `_`"),
        ("local", "environment id `local` is reserved; choose another"),
        ("None", "environment id `None` is reserved; choose another"),
    ] {
        let refused = parse(&format!("[[environments]]\nid = \"{id}\"\nurl = \"ws://h\"")).unwrap_err();
        assert_eq!(refused, format!("/conf/environments.toml:2: {words}"));
    }
}

#[test]
fn an_id_may_have_64_characters_and_no_more() {
    let parse_id_of_length = |length| {
        let id = "a".repeat(length);
        parse(&format!("[[environments]]\nid = \"{id}\"\nurl = \"ws://h\""))
    };
    assert_eq!(parse_id_of_length(64).unwrap().entries.len(), 2);
    assert!(parse_id_of_length(65).unwrap_err().ends_with("is longer than 64 characters"));
}

#[test]
fn an_id_that_is_used_twice_is_refused() {
    let one = "[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n";
    assert_eq!(parse(&one.repeat(2)).unwrap_err(), "/conf/environments.toml:5: environment id `a` is used twice");
}

#[test]
fn timeouts_are_seconds_with_or_without_a_fraction() {
    let times = "connect_timeout_sec = 12.5\ninitialize_timeout_sec = 30\nsilence_timeout_sec = 60";
    let text = format!("[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n{times}");
    let spec = parse(&text).unwrap().entries.remove("a").unwrap();
    assert_eq!(
        (spec.connect_timeout, spec.initialize_timeout, spec.silence_timeout),
        (Duration::from_millis(12_500), Duration::from_secs(30), Duration::from_secs(60))
    );
}

#[test]
fn relative_paths_are_resolved_against_the_directory_of_the_file() {
    let path = |text: &str| match parse(text).unwrap().entries.remove("a").unwrap().location {
        EnvironmentLocation::Program { cwd, .. } => cwd,
        EnvironmentLocation::Url { token_file, .. } => token_file,
        other => panic!("{other:?}"),
    };
    assert_eq!(path("[[environments]]\nid = \"a\"\nprogram = \"p\"\ncwd = \"work\""), Some("/conf/work".into()));
    assert_eq!(path("[[environments]]\nid = \"a\"\nurl = \"ws://h\"\ntoken_file = \"t\""), Some("/conf/t".into()));
}

#[test]
fn a_relative_path_is_refused_where_the_file_has_no_absolute_directory() {
    let text = "[[environments]]\nid = \"a\"\nprogram = \"p\"\ncwd = \"work\"";
    let refused = Environments::from_toml(text, Path::new("environments.toml")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "environments.toml:4: environment `a`: `cwd` is relative, and it cannot be resolved because the path of the file \
         is relative too; write an absolute path"
    );
}

#[test]
fn unknown_fields_are_refused_with_their_name_and_line() {
    for (text, line, name) in [
        ("include_local = true\nincludes_local = true", 2, "includes_local"),
        ("[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n\nurI = \"x\"", 5, "urI"),
        ("[[environments]]\nid = \"a\"\nurl = \"ws://h\"\n[other]", 4, "other"),
    ] {
        let refused = parse(text).unwrap_err();
        let expected = format!("/conf/environments.toml:{line}: unknown field `{name}`");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn text_that_the_parser_refuses_gives_one_line_with_the_line_number() {
    for (text, line) in [("a = 1\nb", 2), ("\n\ndefault = 7", 3), ("[[environments]]\nurl = \"ws://h\"", 1)] {
        let refused = parse(text).unwrap_err();
        assert!(refused.starts_with(&format!("/conf/environments.toml:{line}: ")), "{refused}");
        assert!(!refused.contains('\n'), "{refused}");
    }
}

#[test]
fn environments_with_a_unix_socket_with_tls_and_with_ssh_are_read() {
    let text = r#"
        [[environments]]
        id = "socket"
        url = "unix:///run/exec.sock"
        [[environments]]
        id = "tls"
        url = "wss://build.example.com"
        ca_file = "ca.pem"
        token_file = "/etc/token"
        [[environments]]
        id = "ssh"
        ssh = "me@build"
        local_root = "/src/app"
        remote_root = "/srv/app/"
        [[environments]]
        id = "plain-ssh"
        ssh = "build"
        program = "/opt/exec-server"
    "#;
    let mut entries = parse(text).unwrap().entries;
    let mut location = |id: &str| entries.remove(id).unwrap().location;
    assert_eq!(location("socket"), url("unix:///run/exec.sock"));
    assert_eq!(
        location("tls"),
        EnvironmentLocation::Url {
            url: "wss://build.example.com".into(),
            ca_file: Some("/conf/ca.pem".into()),
            token_file: Some("/etc/token".into()),
        }
    );
    let paths = PathMap::new(Path::new("/src/app"), Path::new("/srv/app")).unwrap();
    assert_eq!(
        location("ssh"),
        EnvironmentLocation::Ssh { host: "me@build".into(), program: "exec-server".into(), paths }
    );
    assert_eq!(
        location("plain-ssh"),
        EnvironmentLocation::Ssh {
            host: "build".into(),
            program: "/opt/exec-server".into(),
            paths: PathMap::default()
        }
    );
}

#[test]
fn every_example_of_the_environments_document_is_valid() {
    let document = include_str!("../../../../docs/environments.md");
    let examples: Vec<_> = document.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(examples.len(), 3);
    for example in examples {
        parse(example).unwrap();
    }
}

#[test]
fn the_candidates_are_the_paths_in_the_order_in_which_they_are_tried() {
    let variables = HomeAndVariables::default().with_home("/h").with_variable("EXEC_SERVER_HOME", "/own");
    let files: Vec<_> =
        ["/own", "/h/.config/exec-server", "/h/.codex"].map(|path| Path::new(path).join("environments.toml")).into();
    assert_eq!(Environments::candidate_files(&variables), files);
    assert_eq!(Environments::candidate_files(&HomeAndVariables::default()), Vec::<PathBuf>::new());
}

#[test]
fn the_source_is_the_file_or_variable_and_says_whether_the_file_names_a_default() {
    let (nothing, source) = Environments::load_with_source(&HomeAndVariables::default()).unwrap();
    assert_eq!((nothing, source), (local_alone(), EnvironmentsSource::Unconfigured));
    let by_variable = HomeAndVariables::default().with_variable("EXEC_SERVER_URL", "ws://h");
    let (_, source) = Environments::load_with_source(&by_variable).unwrap();
    assert_eq!(source, EnvironmentsSource::Variable("EXEC_SERVER_URL"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("environments.toml");
    for (text, names_default) in [("", false), ("default = \"local\"", true), ("default = \"none\"", true)] {
        fs::write(&path, text).unwrap();
        let by_file = by_variable.clone().with_variable("EXEC_SERVER_HOME", folder.path());
        let (_, source) = Environments::load_with_source(&by_file).unwrap();
        assert_eq!(source, EnvironmentsSource::File { path: path.clone(), names_default }, "{text}");
    }
}
