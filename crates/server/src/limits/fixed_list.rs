//! The macro that makes constants, and a list of them for the documentation, from one table. The tables are in `fixed.rs` and `fixed/policies.rs`.

/// Makes the constants and the list `LIMITS` from groups of entries. An entry consists of a line
/// `/// what is limited`, lines `/// what happens at the limit`, and `NAME: type = value, unit, "why it is fixed";`.
macro_rules! fixed_limits {
    ($(
        $group:literal {$(
            #[doc = $what:literal]
            $(#[doc = $at_limit:literal])+
            $name:ident: $type:ty = $value:expr, $unit:ident, $reason:literal;
        )+}
    )+) => {
        $($(
            #[doc = $what]
            $(#[doc = $at_limit])+
            #[doc = concat!(" ", $reason)]
            pub(crate) const $name: $type = $value;
        )+)+

        /// The limits of this file, in the order in which the documentation shows them.
        pub(super) const LIMITS: &[$crate::limits::FixedLimit] = &[$($(
            $crate::limits::FixedLimit {
                group: $group,
                what: $what.trim_ascii(),
                at_limit: concat!($($at_limit),+).trim_ascii(),
                reason: $reason,
                value: $crate::limits::LimitValue {
                    number: number!($unit, $name),
                    unit: $crate::limits::LimitUnit::$unit,
                },
            },
        )+)+];
    };
}

/// The value of a constant as a `u64`, in the unit of its limit.
macro_rules! number {
    (Milliseconds, $name:ident) => {
        $name.as_millis() as u64
    };
    ($unit:ident, $name:ident) => {
        $name as u64
    };
}

pub(in crate::limits) use {fixed_limits, number};
