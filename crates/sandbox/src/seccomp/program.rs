//! Makes a filter from rules about system calls. A filter is a program for the kernel's packet filter machine (BPF).
//!
//! When a filter is installed, the kernel runs it once for every number that a system call can have, to learn which calls
//! it always allows. Each command installs a filter, so this is a part of every start. Comparing
//! with one number after the other takes longer than all else that the launcher does, so the program uses a binary search.

use std::collections::BTreeMap;

use libc::{c_long, sock_filter};

/// When a system call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Always,
    /// If the lower half of the argument with this number has one of these bits.
    AnyBit(u32, u32),
    /// If the lower half of the argument with this number has this value.
    Is(u32, u32),
    /// If the lower half of the argument with the first number has this value, and the argument with the last number is not null.
    IsWith(u32, u32, u32),
    /// If the lower half of the argument with this number has none of these values.
    NoneOf(u32, &'static [u32]),
    /// If the lower half of the argument with this number, with only the bits of this mask, has none of these values.
    MaskedNoneOf(u32, u32, &'static [u32]),
    /// If the lower half of the argument with this number has none of the first values, and also none of the second values when only the
    /// bits of this mask are compared.
    NoneOfNorMasked(u32, &'static [u32], u32, &'static [u32]),
}

#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_00B7;

/// The numbers of system calls in a second calling convention of x86_64 (x32) have this bit. The rules do not know these calls.
#[cfg(target_arch = "x86_64")]
pub(super) const X32_BIT: u32 = 0x4000_0000;

/// Offsets in the data that the kernel gives the filter.
const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCHITECTURE: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;
/// The upper half of an argument comes after the lower half.
const HALF_BYTES: u32 = 4;

/// Codes of instructions.
pub(super) const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
pub(super) const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
pub(super) const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
pub(super) const JUMP_IF_AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
pub(super) const JUMP_IF_ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
pub(super) const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Up to this many calls are compared one after the other. A longer list is split in the middle (binary search).
const MAX_COMPARED_IN_TURN: usize = 3;

/// The rules of a call, each with what the kernel does if the rule applies. The first rule that applies decides.
type CallRules = Vec<(Rule, u32)>;

/// The rules of a filter, by the number of their call. Calls without rules are allowed.
#[derive(Default)]
pub(super) struct RefusedCalls {
    rules: BTreeMap<u32, CallRules>,
}

impl RefusedCalls {
    pub(super) fn refuse(&mut self, call: c_long, rule: Rule, action: u32) {
        self.rules.entry(call as u32).or_default().push((rule, action));
    }

    /// The instructions of the filter, as the kernel takes them.
    pub(super) fn to_filter(&self) -> Vec<sock_filter> {
        let calls: Vec<_> = self.rules.iter().map(|(call, rules)| (*call, rules)).collect();
        let mut program = Program::default();
        // Ends a process that uses another calling convention, because the numbers of its calls mean something else.
        let (foreign, own) = (program.return_of(libc::SECCOMP_RET_KILL_PROCESS), Target::Next);
        program.add(LOAD, OFFSET_ARCHITECTURE);
        program.jump(JUMP_IF_EQUAL, ARCHITECTURE, own, foreign);
        program.add(LOAD, OFFSET_NUMBER);
        #[cfg(target_arch = "x86_64")]
        {
            let missing = program.return_of(super::NOT_IMPLEMENTED);
            program.jump(JUMP_IF_ANY_BIT, X32_BIT, missing, Target::Next);
        }
        let mut bodies = Vec::new();
        program.search(&calls, &mut bodies);
        for (label, rules) in bodies {
            program.place(label);
            program.apply(rules);
        }
        program.finish()
    }
}

/// Where a jump leads.
#[derive(Clone, Copy)]
enum Target {
    /// To the next instruction.
    Next,
    /// To the place of the label with this number.
    Label(usize),
}

/// A program while it is written. Jumps lead forward, and name their targets by labels, which are placed later.
#[derive(Default)]
struct Program {
    instructions: Vec<(sock_filter, [Target; 2])>,
    /// The number of the instruction at each label.
    labels: Vec<usize>,
    /// For each action, the label of the instruction that ends the filter with it. Rules with the same action share the instruction.
    returns: BTreeMap<u32, usize>,
}

impl Program {
    fn add(&mut self, code: u16, operand: u32) {
        self.jump(code, operand, Target::Next, Target::Next);
    }

    fn jump(&mut self, code: u16, operand: u32, if_true: Target, if_false: Target) {
        self.instructions.push((sock_filter { code, jt: 0, jf: 0, k: operand }, [if_true, if_false]));
    }

    fn new_label(&mut self) -> usize {
        self.labels.push(0);
        self.labels.len() - 1
    }

    /// Puts a label at the instruction that is added next.
    fn place(&mut self, label: usize) {
        self.labels[label] = self.instructions.len();
    }

    /// The instruction that ends the filter with this action.
    fn return_of(&mut self, action: u32) -> Target {
        if let Some(label) = self.returns.get(&action) {
            return Target::Label(*label);
        }
        let label = self.new_label();
        self.returns.insert(action, label);
        Target::Label(label)
    }

    /// Adds a search for the number in the register among `calls`, which are sorted. If a call is not always refused, its rules and the label
    /// to which the search jumps are added to `bodies`.
    fn search<'a>(&mut self, calls: &[(u32, &'a CallRules)], bodies: &mut Vec<(usize, &'a CallRules)>) {
        if calls.len() > MAX_COMPARED_IN_TURN {
            let (lower, higher) = calls.split_at(calls.len() / 2);
            let label = self.new_label();
            self.jump(JUMP_IF_AT_LEAST, higher[0].0, Target::Label(label), Target::Next);
            self.search(lower, bodies);
            self.place(label);
            return self.search(higher, bodies);
        }
        for (left, (call, rules)) in (0..calls.len()).rev().zip(calls) {
            let found = match rules.as_slice() {
                [(Rule::Always, action), ..] => self.return_of(*action),
                _ => {
                    let label = self.new_label();
                    bodies.push((label, rules));
                    Target::Label(label)
                }
            };
            let other = if left == 0 { self.return_of(libc::SECCOMP_RET_ALLOW) } else { Target::Next };
            self.jump(JUMP_IF_EQUAL, *call, found, other);
        }
    }

    /// Adds the instructions that apply the rules of a call one after the other.
    fn apply(&mut self, rules: &CallRules) {
        let allowed = self.return_of(libc::SECCOMP_RET_ALLOW);
        for (left, (rule, action)) in (0..rules.len()).rev().zip(rules) {
            let refused = self.return_of(*action);
            let label = self.new_label();
            let otherwise = if left == 0 { allowed } else { Target::Label(label) };
            match *rule {
                // Every number is at least 0.
                Rule::Always => self.jump(JUMP_IF_AT_LEAST, 0, refused, refused),
                Rule::AnyBit(number, bits) => {
                    self.add(LOAD, argument(number));
                    self.jump(JUMP_IF_ANY_BIT, bits, refused, otherwise);
                }
                Rule::Is(number, value) => {
                    self.add(LOAD, argument(number));
                    self.jump(JUMP_IF_EQUAL, value, refused, otherwise);
                }
                Rule::IsWith(number, value, pointer) => {
                    self.add(LOAD, argument(number));
                    self.jump(JUMP_IF_EQUAL, value, Target::Next, otherwise);
                    self.add(LOAD, argument(pointer));
                    self.jump(JUMP_IF_EQUAL, 0, Target::Next, refused);
                    self.add(LOAD, argument(pointer) + HALF_BYTES);
                    self.jump(JUMP_IF_EQUAL, 0, otherwise, refused);
                }
                Rule::NoneOf(number, values) => {
                    self.add(LOAD, argument(number));
                    self.compare(values, otherwise, refused);
                }
                Rule::MaskedNoneOf(number, mask, values) => {
                    self.add(LOAD, argument(number));
                    self.add(AND, mask);
                    self.compare(values, otherwise, refused);
                }
                Rule::NoneOfNorMasked(number, values, mask, masked_values) => {
                    self.add(LOAD, argument(number));
                    self.compare(values, otherwise, Target::Next);
                    self.add(AND, mask);
                    self.compare(masked_values, otherwise, refused);
                }
            }
            self.place(label);
        }
    }

    /// Adds jumps that depend on whether the register has one of the values, of which there must be at least one.
    fn compare(&mut self, values: &[u32], if_one: Target, if_none: Target) {
        for (left, value) in (0..values.len()).rev().zip(values) {
            self.jump(JUMP_IF_EQUAL, *value, if_one, if left == 0 { if_none } else { Target::Next });
        }
    }

    /// Adds the instructions that end the filter, and puts distances in place of labels.
    fn finish(mut self) -> Vec<sock_filter> {
        for (action, label) in std::mem::take(&mut self.returns) {
            self.place(label);
            self.add(RETURN, action);
        }
        let labels = &self.labels;
        let distance = |at: usize, target: Target| match target {
            Target::Next => 0,
            // A test makes sure that no program is too long for distances of one byte.
            Target::Label(label) => (labels[label] - at - 1) as u8,
        };
        let resolved = self.instructions.iter().enumerate().map(|(at, (instruction, [if_true, if_false]))| {
            sock_filter { jt: distance(at, *if_true), jf: distance(at, *if_false), ..*instruction }
        });
        resolved.collect()
    }
}

/// The offset of the lower half of an argument.
fn argument(number: u32) -> u32 {
    OFFSET_ARGUMENTS + 8 * number
}
