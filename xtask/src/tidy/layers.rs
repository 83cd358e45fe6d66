//! The layers: a crate imports only from layers below it, and rules and mechanisms never import each other. Only a
//! shell joins them.

use super::complaint::Complaint;
use super::project::{Dependency, Kind, Member, Project};

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Vocabulary,
    Rules,
    Mechanisms,
    Shells,
    /// What programs embed: client and server in one.
    Embedding,
    Faces,
    /// Tests and chores: they may use everything, nothing that is shipped may use them.
    Beside,
}

const LAYERS: &[(&str, Layer)] = &[
    ("protocol", Layer::Vocabulary),
    ("relay", Layer::Vocabulary),
    ("session", Layer::Rules),
    ("recovery", Layer::Rules),
    ("spawn", Layer::Mechanisms),
    ("sandbox", Layer::Mechanisms),
    ("files", Layer::Mechanisms),
    ("fetch", Layer::Mechanisms),
    ("transport", Layer::Mechanisms),
    ("server", Layer::Shells),
    ("client", Layer::Shells),
    ("rendezvous", Layer::Shells),
    ("exec-server", Layer::Embedding),
    ("exec-server-cli", Layer::Faces),
    ("testkit", Layer::Beside),
    ("xtask", Layer::Beside),
    ("bench", Layer::Beside),
];

/// The outside world; vocabulary and rules are values and get time, bytes and randomness passed in.
const OUTSIDE_WORLD: &[&str] = &["hyper", "libc", "mio", "rustix", "tokio"];

/// The layer of a crate, `None` if it has not been given one.
pub(super) fn layer_of(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

impl Layer {
    /// Vocabulary and rules are values: no sockets, no files, no clock of their own.
    pub(super) fn is_pure(self) -> bool {
        matches!(self, Self::Vocabulary | Self::Rules)
    }

    fn may_import(self, other: Self) -> bool {
        match self {
            // The lowest layer, and mechanisms, which know nothing of what is sent over them.
            Self::Vocabulary | Self::Mechanisms => false,
            Self::Rules => other == Self::Vocabulary,
            Self::Shells | Self::Embedding | Self::Faces => other < self,
            Self::Beside => true,
        }
    }
}

/// Checks every dependency that a manifest of ours names.
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

fn objection(member: &Member, layer: Layer, used: &Dependency) -> Option<String> {
    if !used.is_ours() {
        let forbidden = layer.is_pure() && OUTSIDE_WORLD.contains(&used.name.as_str());
        return forbidden.then(|| {
            format!(
                "`{}` is {layer:?} and must not depend on `{}`: it takes no part in the outside world",
                member.name, used.name
            )
        });
    }
    // A crate without a layer has a complaint of its own.
    let other = layer_of(&used.name)?;
    // The rules of the two ends of a session are tested together.
    let are_both_rules = layer == Layer::Rules && other == Layer::Rules;
    let for_tests = used.kind == Kind::Dev && (other == Layer::Beside || are_both_rules);
    (!for_tests && !layer.may_import(other)).then(|| {
        let hint = match other {
            Layer::Beside => "; make it a dev-dependency",
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
    fn imports_go_down() {
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
    fn imports_never_go_up_or_sideways() {
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
    fn values_do_not_reach_for_the_outside_world() {
        assert_eq!(complaints("session", foreign("tokio", Kind::Normal)).len(), 1);
        assert_eq!(complaints("protocol", foreign("rustix", Kind::Dev)).len(), 1);
        assert_eq!(complaints("session", foreign("bytes", Kind::Normal)), [""; 0]);
        assert_eq!(complaints("spawn", foreign("tokio", Kind::Normal)), [""; 0]);
    }

    #[test]
    fn every_crate_has_a_layer() {
        let complaints = complaints("newcomer", foreign("bytes", Kind::Normal));
        assert!(complaints[0].contains("`newcomer` has no layer"), "{complaints:?}");
    }
}
