//! The layers of a project: one for each configuration file in the folders from the root of the project down to the
//! working directory. Only trusted folders count (`trust`), and keys that a project may not set are removed.

use std::path::Path;

use files::{FileRoot, Follow};
use toml::{Table, Value};

use super::document::{DocumentReader, FileRole, parse};
use super::git::{Checkout, DotGit, kind_of_dot_git};
use super::trust::ProjectTrust;
use super::{CODEX_DIRECTORY, CONFIG_FILE, ConfigError, Layer};

/// Keys that a project may not set, even if it is trusted. For example, with some of them a project could send the
/// input or the credentials of the user to another server, or run a program unnoticed.
const FORBIDDEN_KEYS: [&[&str]; 15] = [
    &["openai_base_url"],
    &["chatgpt_base_url"],
    &["apps_mcp_product_sku"],
    &["responses_api_metadata"],
    &["model_provider"],
    &["model_providers"],
    &["notify"],
    &["profile"],
    &["profiles"],
    &["experimental_realtime_webrtc_call_base_url"],
    &["experimental_realtime_ws_base_url"],
    &["otel"],
    &["features", "respect_system_proxy"],
    &["tui", "keymap", "chat", "previous_permission_mode"],
    &["tui", "keymap", "chat", "next_permission_mode"],
];

/// The key of hooks. In a linked git worktree, hooks come from the main checkout, so that a branch cannot bring its own.
const HOOKS: &str = "hooks";

/// The layers of the trusted folders, from the root of the project down to `cwd`.
pub(super) fn layers(
    cwd: &Path,
    codex_home: &Path,
    project_trust: &ProjectTrust,
    reader: &mut DocumentReader,
) -> Result<Vec<Layer>, ConfigError> {
    let root = project_root(cwd, &project_trust.markers);
    let checkout = Checkout::around(cwd);
    let mut folders: Vec<&Path> = cwd.ancestors().take_while(|folder| folder.starts_with(root)).collect();
    folders.reverse();
    let mut layers = Vec::new();
    for folder in folders {
        let directory = folder.join(CODEX_DIRECTORY);
        let is_directory =
            files::metadata(FileRoot::host(), &directory, Follow::Yes).is_ok_and(|metadata| metadata.is_directory);
        // The configuration of the user is a layer already. It is found here if `folder` is the home directory.
        if !is_directory || is_same(&directory, codex_home) {
            continue;
        }
        let path = directory.join(CONFIG_FILE);
        // An unreadable file is an error in every folder, but the text of a file is parsed only in a trusted folder.
        let text = reader.text(&path, FileRole::Project)?;
        if !project_trust.trusts(folder, root, checkout.as_ref().map(Checkout::root)) {
            continue;
        }
        let mut table = text.map(|text| parse(&text, &path, FileRole::Project)).transpose()?.unwrap_or_default();
        for keys in FORBIDDEN_KEYS {
            remove(&mut table, keys);
        }
        let linked = checkout.as_ref().and_then(|checkout| Some((&checkout.folder, checkout.main.as_ref()?)));
        if linked.is_some() {
            table.remove(HOOKS);
        }
        layers.push(layer(&directory, table));
        if let Some((worktree, main)) = linked
            && let Ok(relative) = folder.strip_prefix(worktree)
        {
            let directory = main.join(relative).join(CODEX_DIRECTORY);
            let mut table = reader.document(&directory.join(CONFIG_FILE), FileRole::Hooks)?;
            table.retain(|key, _| key == HOOKS);
            layers.push(layer(&directory, table));
        }
    }
    Ok(layers)
}

fn layer(directory: &Path, table: Table) -> Layer {
    let source = format!("project ({})", directory.join(CONFIG_FILE).display());
    Layer { source, directory: directory.to_owned(), table }
}

/// The nearest folder at or above `cwd` that contains one of the markers, which are names of files or directories.
/// `cwd` if no folder does.
fn project_root<'a>(cwd: &'a Path, markers: &[String]) -> &'a Path {
    let has = |folder: &Path, marker: &str| match marker {
        ".git" => kind_of_dot_git(folder) != DotGit::None,
        _ => files::metadata(FileRoot::host(), &folder.join(marker), Follow::Yes).is_ok(),
    };
    cwd.ancestors().find(|folder| markers.iter().any(|marker| has(folder, marker))).unwrap_or(cwd)
}

fn is_same(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((files::canonicalize(FileRoot::host(), one), files::canonicalize(FileRoot::host(), other)), (Ok(one), Ok(other)) if one == other)
}

/// Removes the value at the path `keys`.
fn remove(table: &mut Table, keys: &[&str]) {
    match keys {
        [] => {}
        [last] => drop(table.remove(*last)),
        [first, rest @ ..] => {
            if let Some(Value::Table(below)) = table.get_mut(*first) {
                remove(below, rest);
            }
        }
    }
}
