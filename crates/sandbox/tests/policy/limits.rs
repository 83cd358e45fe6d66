//! Limits: a policy that is too large is refused, quickly, and with the number that is the limit.

use sandbox::Access::{Deny, Read, Write};
use sandbox::{PolicyError, policy_limits as limits};

use super::{Machine, deny_glob, path, project_roots, request};

fn refused(request: &sandbox::PolicyRequest) -> PolicyError {
    Machine::default().resolve(request).unwrap_err()
}

#[test]
fn the_number_of_entries_and_roots_is_limited() {
    let entries = |count: usize| (0..count).map(|index| path(format!("/{index}"), Read)).collect();
    assert!(Machine::default().resolve(&request(entries(limits::MAX_REQUESTED_ENTRIES))).is_ok());
    let error = refused(&request(entries(limits::MAX_REQUESTED_ENTRIES + 1)));
    assert_eq!(error.to_string(), "the sandbox has 2049 entries; the limit is 2048");

    let mut many_roots = request(vec![project_roots(None, Write)]);
    many_roots.workspace_roots = (0..limits::MAX_WORKSPACE_ROOTS).map(|index| format!("/{index}").into()).collect();
    assert!(Machine::default().resolve(&many_roots).is_ok());
    many_roots.workspace_roots.push("/x".into());
    assert_eq!(refused(&many_roots), PolicyError::TooManyWorkspaceRoots(1025));
}

#[test]
fn entries_that_stand_for_many_paths_are_limited() {
    let mut product = request((0..9).map(|index| project_roots(Some(&index.to_string()), Read)).collect());
    product.workspace_roots = (0..limits::MAX_WORKSPACE_ROOTS).map(|index| format!("/{index}").into()).collect();
    assert_eq!(refused(&product), PolicyError::TooManyPaths);
}

#[test]
fn the_length_of_paths_is_limited_alone_and_together() {
    assert_eq!(refused(&request(vec![path("/x".repeat(2048), Read)])), PolicyError::PathTooLong(4096));
    let long = |index: usize| path(format!("/{index:04}{}", "/x".repeat(2000)), Read);
    assert_eq!(refused(&request((0..300).map(long).collect())), PolicyError::PathsTooLong);
    let mut long_root = request(vec![project_roots(None, Read)]);
    long_root.workspace_roots = vec!["/x".repeat(2048).into()];
    assert_eq!(refused(&long_root), PolicyError::PathTooLong(4096));
}

#[test]
fn patterns_are_limited_alone_together_and_in_what_they_stand_for() {
    assert_eq!(refused(&request(vec![deny_glob(&"*".repeat(1025))])), PolicyError::PatternTooLong(1025));
    let braces = "/{a,b}".repeat(7);
    assert_eq!(refused(&request(vec![deny_glob(&braces)])), PolicyError::TooManyAlternatives(braces));
    let long = |index: usize| deny_glob(&format!("/*{index}{}", "x".repeat(1000)));
    assert_eq!(refused(&request((0..17).map(long).collect())), PolicyError::PatternsTooLong);
}

#[test]
fn the_product_of_paths_and_patterns_is_limited() {
    let glob = |index: usize| deny_glob(&format!("/*{index}{}", "x".repeat(990)));
    let long = |index: usize| path(format!("/{index:04}{}", "/x".repeat(2000)), Write);
    let entries = |paths: usize| (0..16).map(glob).chain((0..paths).map(long)).collect();
    assert!(Machine::default().resolve(&request(entries(20))).is_ok());
    assert!(matches!(refused(&request(entries(40))), PolicyError::PatternsTooCostly { .. }));
}

/// What this thread has used of the processor so far, in nanoseconds. Other processes have no influence on it.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// A thousand roots with their protections: twice as many roots take about twice as long, and not four times.
#[test]
fn a_thousand_roots_are_resolved_in_linear_time() {
    let time = |count: usize| {
        let mut many = request(vec![path("/", Read), project_roots(None, Write), project_roots(Some(".git"), Read)]);
        many.workspace_roots = (0..count).map(|index| format!("/srv/space/number-{index}").into()).collect();
        // The kernel counts in ticks of a few milliseconds, so once would be too short.
        let start = processor_time();
        for _ in 0..40 {
            let policy = Machine::default().resolve(&many).unwrap();
            assert_eq!(policy.entries().len(), 1 + 4 * count);
        }
        processor_time() - start
    };
    let (some, many) = (time(125), time(1000));
    // Eight times as many; quadratic cost would be a factor of 64.
    assert!(many < some * 30, "{some} and {many} nanoseconds");
}

/// The most expensive policy that is not refused: long writable paths, each of which is compared with long globs. The
/// test would not end if the cost were exponential.
#[test]
fn the_most_expensive_policy_ends() {
    let deep = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/".repeat(80);
    let glob = |index: usize| deny_glob(&format!("/{}{index}", "**/*a*aaaaaaaaaaaaaaaaaaaaaaaab/".repeat(30)));
    let entries = (0..25)
        .map(|index| path(format!("/{deep}{index}"), Write))
        .chain((0..15).map(glob))
        .chain([path("/x", Deny)])
        .collect();
    let policy = Machine::default().resolve(&request(entries)).unwrap();
    assert_eq!(policy.access(std::path::Path::new(&format!("/{deep}0/.git"))).access, Read);
}
