//! Checks the layers of ARCHITECTURE.md: a crate imports only from layers below its own. Some of these imports are
//! forbidden too, so rules and mechanisms never import each other. A new crate gets its layer in [`LAYERS`].

use super::complaint::Complaint;
use super::project::{Dependency, Kind, Member, Project};

/// The layer of a crate, from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CrateLayer {
    /// The messages on the wire and their encoding, without I/O.
    Vocabulary,
    /// Values that make decisions. They get the time passed in and do no I/O.
    Rules,
    /// Code that several mechanisms share.
    Foundations,
    /// Access to the operating system, to files and to the network.
    Mechanisms,
    /// Proof to a service on the network of who this program is. It makes requests, so it stands above the mechanisms.
    Credentials,
    /// The ends of remote mode: tasks that join the vocabulary of the relay, the rules and the mechanisms into message
    /// streams. Server and client both use them.
    RemoteEnds,
    /// Tasks that join rules and mechanisms.
    Shells,
    /// The library for programs that embed client and server.
    Embedding,
    /// The programs that people start.
    Faces,
    /// Crates for tests, measurements and chores. They may import everything. Other crates may import them only in
    /// tests.
    Beside,
}

/// The layer of each crate. The crate `rendezvous` does not exist yet.
const LAYERS: &[(&str, CrateLayer)] = &[
    ("protocol", CrateLayer::Vocabulary),
    ("relay", CrateLayer::Vocabulary),
    ("session", CrateLayer::Rules),
    ("recovery", CrateLayer::Rules),
    ("certificates", CrateLayer::Foundations),
    ("spawn", CrateLayer::Mechanisms),
    ("sandbox", CrateLayer::Mechanisms),
    ("files", CrateLayer::Mechanisms),
    ("fetch", CrateLayer::Mechanisms),
    ("proxy", CrateLayer::Mechanisms),
    ("transport", CrateLayer::Mechanisms),
    ("credentials", CrateLayer::Credentials),
    ("remote", CrateLayer::RemoteEnds),
    ("server", CrateLayer::Shells),
    ("client", CrateLayer::Shells),
    ("rendezvous", CrateLayer::Shells),
    ("exec-server", CrateLayer::Embedding),
    ("exec-server-cli", CrateLayer::Faces),
    ("testkit", CrateLayer::Beside),
    ("xtask", CrateLayer::Beside),
    ("bench", CrateLayer::Beside),
];

/// Third-party crates that do I/O or read the clock. Vocabulary and rules must not use them: their callers pass in
/// time, bytes and randomness.
const OUTSIDE_WORLD: &[&str] = &["hyper", "libc", "mio", "rustix", "tokio"];

/// The layer of a crate. `None` if the crate is not in [`LAYERS`].
pub(super) fn layer_of(name: &str) -> Option<CrateLayer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

impl CrateLayer {
    /// Whether the crates of this layer have values only: no sockets, no files, no clock of their own.
    pub(super) fn is_pure(self) -> bool {
        matches!(self, Self::Vocabulary | Self::Rules)
    }

    fn may_import(self, other: Self) -> bool {
        match self {
            Self::Vocabulary | Self::Foundations => false,
            // Mechanisms do not know the messages that they carry.
            Self::Mechanisms => other == Self::Foundations,
            Self::Rules => other == Self::Vocabulary,
            // Credentials know requests and their headers, and nothing of the environments for which they are used.
            Self::Credentials => matches!(other, Self::Foundations | Self::Mechanisms),
            Self::RemoteEnds | Self::Shells | Self::Embedding | Self::Faces => other < self,
            Self::Beside => true,
        }
    }
}

/// Checks every dependency in the manifests of the workspace.
pub(super) fn check(project: &Project) -> Vec<Complaint> {
    project.members.iter().flat_map(check_member).collect()
}

fn check_member(member: &Member) -> Vec<Complaint> {
    let manifest = format!("{}/Cargo.toml", member.folder);
    let Some(layer) = layer_of(&member.name) else {
        return vec![Complaint::about(
            manifest,
            format!("`{}` has no layer; give it one in xtask/src/tidy/layers.rs", member.name),
        )];
    };
    let objections = member.dependencies.iter().filter_map(|used| objection(member, layer, used));
    objections.map(|objection| Complaint::about(&manifest, objection)).collect()
}

fn objection(member: &Member, layer: CrateLayer, used: &Dependency) -> Option<String> {
    if !used.is_ours() {
        let forbidden = layer.is_pure() && OUTSIDE_WORLD.contains(&used.name.as_str());
        return forbidden.then(|| {
            format!(
                "`{}` is {layer:?} and must not depend on `{}`: take time, bytes and randomness as arguments",
                member.name, used.name
            )
        });
    }
    // A crate without a layer gets its own complaint from `check_member`.
    let other = layer_of(&used.name)?;
    // The rules of the server and those of the client are tested together.
    let are_both_rules = layer == CrateLayer::Rules && other == CrateLayer::Rules;
    let is_allowed_in_tests = used.kind == Kind::Dev && (other == CrateLayer::Beside || are_both_rules);
    (!is_allowed_in_tests && !layer.may_import(other)).then(|| {
        let hint = match other {
            CrateLayer::Beside => "; make it a dev-dependency",
            _ => "",
        };
        format!("`{}` ({layer:?}) must not import `{}` ({other:?}){hint}", member.name, used.name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::project::made_up::{foreign, member, ours};
    use super::*;

    fn complaints(name: &str, used: Dependency) -> Vec<String> {
        let project = Project { members: vec![member(name, vec![used])], ..Project::default() };
        check(&project).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn allowed_imports_are_accepted() {
        for (importer, imported) in [
            ("session", "protocol"),
            ("server", "session"),
            ("server", "spawn"),
            ("exec-server", "server"),
            ("testkit", "transport"),
            ("xtask", "testkit"),
        ] {
            assert_eq!(complaints(importer, ours(imported, Kind::Normal)), [""; 0], "{importer} -> {imported}");
        }
    }

    #[test]
    fn forbidden_imports_are_refused() {
        for (importer, imported) in [
            ("protocol", "session"),
            ("protocol", "relay"),
            ("session", "spawn"),
            ("spawn", "session"),
            ("transport", "protocol"),
            ("sandbox", "spawn"),
            ("server", "client"),
            ("server", "exec-server"),
        ] {
            for kind in [Kind::Normal, Kind::Dev, Kind::Build] {
                assert_eq!(complaints(importer, ours(imported, kind)).len(), 1, "{importer} -> {imported}");
            }
        }
        assert_eq!(
            complaints("spawn", ours("session", Kind::Normal)),
            ["crates/spawn/Cargo.toml: `spawn` (Mechanisms) must not import `session` (Rules)"]
        );
    }

    #[test]
    fn rules_import_each_other_in_tests_only() {
        assert_eq!(complaints("recovery", ours("session", Kind::Dev)), [""; 0]);
        assert_eq!(complaints("recovery", ours("session", Kind::Normal)).len(), 1);
    }

    #[test]
    fn the_testkit_is_for_tests_only() {
        assert_eq!(complaints("server", ours("testkit", Kind::Dev)), [""; 0]);
        assert_eq!(
            complaints("server", ours("testkit", Kind::Normal)),
            [
                "crates/server/Cargo.toml: `server` (Shells) must not import `testkit` (Beside); make it a dev-dependency"
            ]
        );
    }

    #[test]
    fn vocabulary_and_rules_must_not_depend_on_crates_that_do_io() {
        assert_eq!(complaints("session", foreign("tokio", Kind::Normal)).len(), 1);
        assert_eq!(complaints("protocol", foreign("rustix", Kind::Dev)).len(), 1);
        assert_eq!(complaints("session", foreign("bytes", Kind::Normal)), [""; 0]);
        assert_eq!(complaints("spawn", foreign("tokio", Kind::Normal)), [""; 0]);
    }

    #[test]
    fn a_crate_without_a_layer_is_refused() {
        let complaints = complaints("newcomer", foreign("bytes", Kind::Normal));
        assert!(complaints[0].contains("`newcomer` has no layer"), "{complaints:?}");
    }
}
