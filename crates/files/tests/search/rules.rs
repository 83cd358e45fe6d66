//! Compares the files that a search finds with those that the walker of ripgrep (the crate `ignore`) finds, in random
//! and in fixed trees with ignore files. The walker of ripgrep opens ignore files in a way that can block. So the
//! crate `files` has its own implementation of the rules, which must give the same result.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use files::{SearchHit, SearchQuery};
use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::run;

const NAMES: [&str; 5] = ["a", "b", "c.t", ".h", "d"];
const PATTERNS: [&str; 34] = [
    "a",
    "b",
    "/a",
    "a/",
    "!a",
    "*",
    "!*/",
    "b/**",
    "**/b",
    "a/b",
    "!.h",
    "*.t",
    "!*.t",
    "\\!a",
    "# comment",
    "",
    "!a/",
    "[ab",
    "{a,b}",
    "a ",
    "/*",
    "!/b/",
    "!/a",
    "d/",
    "/d",
    ".*",
    "!.*",
    "a/**/b",
    "!b",
    "?",
    "a\r",
    "{a",
    "d/a/b",
    "!d/a",
];
const GLOBS: [&str; 6] = ["*.t", "!a", "!b/**", ".h", "/a", "a/**"];
const IGNORE_FILES: [&str; 3] = [".gitignore", ".ignore", ".rgignore"];

/// The kind of a repository whose top is a [`RandomDirectory`]. `excludes` are the lines of its `info/exclude`.
#[derive(Clone, Debug)]
enum RepositoryKind {
    Repository {
        excludes: Vec<&'static str>,
    },
    Worktree {
        excludes: Vec<&'static str>,
    },
    /// Its `.git` file names a directory that does not exist.
    BrokenWorktree,
    Jujutsu,
}

#[derive(Clone, Debug)]
struct RandomDirectory {
    files: Vec<&'static str>,
    /// Name and lines of each ignore file.
    rules: Vec<(&'static str, Vec<&'static str>)>,
    repository: Option<RepositoryKind>,
    /// Name and target of a symbolic link.
    link: Option<(&'static str, &'static str)>,
    /// Name and contents of each subdirectory.
    below: Vec<(&'static str, RandomDirectory)>,
}

fn patterns() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(select(&PATTERNS), 0..5)
}

fn repository() -> impl Strategy<Value = Option<RepositoryKind>> {
    prop_oneof![
        6 => Just(None),
        3 => patterns().prop_map(|excludes| Some(RepositoryKind::Repository { excludes })),
        1 => patterns().prop_map(|excludes| Some(RepositoryKind::Worktree { excludes })),
        1 => Just(Some(RepositoryKind::BrokenWorktree)),
        1 => Just(Some(RepositoryKind::Jujutsu)),
    ]
}

fn link() -> impl Strategy<Value = Option<(&'static str, &'static str)>> {
    prop_oneof![3 => Just(None), 1 => (select(&["l", "a"]), select(&["a", "..", ".", "b/a", "nowhere"])).prop_map(Some)]
}

fn directory() -> impl Strategy<Value = RandomDirectory> {
    let rules = || prop::collection::vec((select(&IGNORE_FILES), patterns()), 0..3);
    let files = || subsequence(&NAMES, 0..NAMES.len());
    let leaf = (files(), rules(), repository()).prop_map(|(files, rules, repository)| RandomDirectory {
        files,
        rules,
        repository,
        link: None,
        below: Vec::new(),
    });
    leaf.prop_recursive(3, 20, 3, move |inner| {
        let below = prop::collection::vec((select(&NAMES), inner), 0..4);
        (files(), rules(), repository(), link(), below).prop_map(|(files, rules, repository, link, below)| {
            RandomDirectory { files, rules, repository, link, below }
        })
    })
}

/// Creates a directory with everything in it. Files, subdirectories and links whose names exist already are skipped.
/// Of two ignore files with the same name, the second overwrites the first. The repositories of worktrees are created
/// in the directory `outside`.
fn create(directory: &RandomDirectory, at: &Path, outside: &Path) {
    if fs::create_dir(at).is_err() {
        return;
    }
    let text = |lines: &[&str]| lines.join("\n");
    for (name, below) in &directory.below {
        create(below, &at.join(name), outside);
    }
    for (name, lines) in &directory.rules {
        fs::write(at.join(name), text(lines)).unwrap();
    }
    let git = at.join(".git");
    match &directory.repository {
        Some(RepositoryKind::Repository { excludes }) if !git.exists() => {
            fs::create_dir_all(git.join("info")).unwrap();
            fs::write(git.join("info/exclude"), text(excludes)).unwrap();
        }
        Some(RepositoryKind::Worktree { excludes }) if !git.exists() => {
            let common = tempfile::tempdir_in(outside).unwrap().keep();
            fs::create_dir_all(common.join("worktrees/w")).unwrap();
            fs::create_dir_all(common.join("info")).unwrap();
            fs::write(common.join("info/exclude"), text(excludes)).unwrap();
            fs::write(common.join("worktrees/w/commondir"), "../..\n").unwrap();
            fs::write(&git, format!("gitdir: {}\n", common.join("worktrees/w").display())).unwrap();
        }
        Some(RepositoryKind::BrokenWorktree) if !git.exists() => fs::write(&git, "gitdir: ../nowhere\n").unwrap(),
        Some(RepositoryKind::Jujutsu) => fs::create_dir_all(at.join(".jj")).unwrap(),
        _ => {}
    }
    for name in &directory.files {
        if !at.join(name).exists() {
            fs::write(at.join(name), name.repeat(10)).unwrap();
        }
    }
    if let Some((name, target)) = directory.link {
        let _fails_if_name_exists = symlink(target, at.join(name));
    }
}

/// The files that the walker of ripgrep finds.
fn files_found_by_ripgrep(search: &SearchQuery) -> BTreeSet<PathBuf> {
    let mut overrides = OverrideBuilder::new(&search.root);
    for glob in &search.globs {
        overrides.add(glob).unwrap();
    }
    let mut walk = WalkBuilder::new(&search.root);
    walk.overrides(overrides.build().unwrap())
        .standard_filters(search.respect_ignore)
        .hidden(!search.hidden)
        .follow_links(search.follow_symlinks)
        .max_depth(search.max_depth)
        .max_filesize(search.max_file_size)
        .current_dir(&search.root);
    if search.respect_ignore {
        walk.add_custom_ignore_filename(".rgignore");
    }
    let found = std::sync::Mutex::new(BTreeSet::new());
    walk.threads(1).build_parallel().run(|| {
        Box::new(|entry| {
            if let Ok(entry) = entry
                && entry.file_type().is_some_and(|kind| kind.is_file())
            {
                found.lock().unwrap().insert(entry.into_path());
            }
            ignore::WalkState::Continue
        })
    });
    found.into_inner().unwrap()
}

fn files_found(search: SearchQuery) -> BTreeSet<PathBuf> {
    let (found, _) = run(search);
    let path_of = |hit: &SearchHit| match hit {
        SearchHit::File { path } | SearchHit::Lines { path, .. } => path.to_path_buf(),
    };
    found.iter().map(path_of).collect()
}

/// Roots to search: the directories of a tree, links to them from outside, and other ways to write their paths.
fn roots(tree: &Path, outside: &Path) -> Vec<PathBuf> {
    let mut roots = vec![tree.to_owned()];
    let mut next = 0;
    while let Some(directory) = roots.get(next).cloned() {
        let entries = fs::read_dir(&directory).unwrap().map(Result::unwrap);
        let below = entries.filter(|entry| entry.file_type().unwrap().is_dir()).map(|entry| entry.path());
        roots.extend(below);
        next += 1;
    }
    for (number, directory) in roots.clone().iter().enumerate() {
        let link = outside.join(format!("link-{number}"));
        symlink(directory, &link).unwrap();
        roots.push(link);
        roots.push(directory.join(""));
        roots.push(directory.join("."));
    }
    roots
}

/// Queries with random options. The test replaces their root.
fn options() -> impl Strategy<Value = SearchQuery> {
    let globs = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(select(&GLOBS), 1..3)];
    (
        any::<bool>(),
        prop::bool::weighted(0.8),
        any::<bool>(),
        prop::option::of(0_usize..4),
        prop::option::weighted(0.1, Just(15)),
        globs,
    )
        .prop_map(|(hidden, respect_ignore, follow_symlinks, max_depth, max_file_size, globs)| SearchQuery {
            hidden,
            respect_ignore,
            follow_symlinks,
            max_depth,
            max_file_size,
            globs: globs.into_iter().map(str::to_owned).collect(),
            threads: Some(2),
            ..SearchQuery::below("/")
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_search_finds_what_ripgrep_finds(tree in directory(), options in options()) {
        let directory = tempfile::tempdir().unwrap();
        let (root, outside) = (directory.path().join("tree"), directory.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        create(&tree, &root, &outside);
        for root in roots(&root, &outside) {
            let search = SearchQuery { root, ..options.clone() };
            let expected = files_found_by_ripgrep(&search);
            prop_assert_eq!(files_found(search.clone()), expected, "{:?}", search);
        }
    }
}

#[test]
fn rules_above_the_root_are_obeyed_however_the_root_is_written() {
    let tree = super::tree(&[(".ignore", "/d/a\nd/e/b\n"), ("d/a", ""), ("d/b", ""), ("d/e/a", ""), ("d/e/b", "")]);
    let outside = tempfile::tempdir().unwrap();
    let link = outside.path().join("link");
    symlink(tree.path().join("d"), &link).unwrap();
    for root in [tree.path().join("d"), tree.path().join("d/."), tree.path().join("d/e/.."), link] {
        let search = SearchQuery::below(&root);
        assert_eq!(files_found(search.clone()), [root.join("b"), root.join("e/a")].into());
        assert_eq!(files_found(search.clone()), files_found_by_ripgrep(&search));
    }
}

/// Environment variables say where the configuration of git is. So the test starts itself in another process for each
/// configuration. In that process, the variable `INNER` names the directory to search.
#[test]
fn global_excludes_of_git_are_obeyed_as_by_ripgrep() {
    const INNER: &str = "SEARCH_WITH_GLOBAL_EXCLUDES";
    if let Some(root) = std::env::var_os(INNER) {
        let search = SearchQuery::below(root);
        let found = files_found(search.clone());
        assert_eq!(found, files_found_by_ripgrep(&search));
        assert_eq!(found.len(), 3, "{found:?}");
        return;
    }
    let root =
        super::tree(&[("r/.git/x", ""), ("r/a", ""), ("r/b", ""), ("r/d/a", ""), ("r/d/e/a", ""), ("r/c", "")]);
    let home = super::tree(&[("excludes", "/a\nd/a\n"), (".config/git/ignore", "/a\nd/a\n")]);
    let configuration_texts = [
        format!("[core]\n\texcludesFile = {}\n", home.path().join("excludes").display()),
        format!("[core]\n[x]\nEXCLUDESFILE=\" {} \"\n[y]\nz = 1", home.path().join("excludes").display()),
        "[core]\nexcludesfile = ~/excludes\nexcludesfile = ~/other\n".to_owned(),
    ];
    let run_again = |variables: &[(&str, &Path)]| {
        let mut inner = Command::new(std::env::current_exe().unwrap());
        inner.args(["--exact", "rules::global_excludes_of_git_are_obeyed_as_by_ripgrep", "--nocapture"]);
        inner.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME").env_remove("GIT_CONFIG_GLOBAL");
        inner.env("GIT_CONFIG_SYSTEM", "/dev/null").env(INNER, root.path().join("r"));
        let output = inner.envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{variables:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    };
    run_again(&[]);
    run_again(&[("XDG_CONFIG_HOME", &home.path().join(".config"))]);
    fs::remove_file(home.path().join(".config/git/ignore")).unwrap();
    let configurations =
        [home.path().join("global"), home.path().join(".gitconfig"), home.path().join(".config/git/config")];
    // `GIT_CONFIG_GLOBAL` always names the first of these files. While that file does not exist, the others count.
    for text in &configuration_texts {
        for configuration in &configurations {
            fs::write(configuration, text).unwrap();
            run_again(&[("GIT_CONFIG_GLOBAL", &configurations[0])]);
            run_again(&[("GIT_CONFIG_SYSTEM", configuration)]);
            fs::remove_file(configuration).unwrap();
        }
    }
}
