//! The table of figures: our figure, the limit of this machine, their ratio, the goal, and whether the goal is
//! reached. The table knows numbers and units, not how they are measured.

use std::fmt;

/// One row of the table. Without a limit, the cells for the limit and the ratio are empty.
#[derive(Debug)]
pub(crate) struct Row {
    /// What was measured, as the first cell shows it. The words after `compared with` say what `limit` is, if it is
    /// not the same work without a server.
    pub(crate) figure: &'static str,
    pub(crate) ours: Measurement,
    /// The baseline that `ours` is compared with, in the same unit: usually the figure of the same work without a
    /// server. The goal multiplies this number or adds to it, except [`Goal::UpTo`], which needs no limit.
    pub(crate) limit: Option<Measurement>,
    pub(crate) goal: Goal,
}

/// A number with its unit, measured or to be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Measurement {
    Seconds(f64),
    PerSecond(f64),
    BytesPerSecond(f64),
    Bytes(f64),
}

/// The goal of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// At most the limit times this number.
    UpToTimes(f64),
    /// At least the limit times this number.
    AtLeastTimes(f64),
    /// At most the limit plus this amount.
    AtMostLimitPlus(Measurement),
    /// At most this amount on any machine.
    UpTo(Measurement),
    /// No goal. The figure only helps to explain another figure.
    Unset,
}

const HEADER: [&str; 6] = ["figure", "ours", "limit", "ratio", "to reach", ""];

/// Columns aligned with spaces: words to the left, numbers to the right.
pub(crate) fn text(rows: &[Row]) -> String {
    let lines = cells(rows);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..HEADER.len()).filter_map(width).collect();
    let mut text = String::new();
    for [figure, ours, limit, ratio, goal, verdict] in &lines {
        let line = format!(
            "{figure:<0$}  {ours:>1$}  {limit:>2$}  {ratio:>3$}  {goal:<4$}  {verdict}",
            widths[0], widths[1], widths[2], widths[3], widths[4]
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The same cells as in [`text`], as a Markdown table.
pub(crate) fn markdown(rows: &[Row]) -> String {
    let mut lines = cells(rows).into_iter().map(|line| format!("| {} |\n", line.join(" | ")));
    let header = lines.next().unwrap_or_default();
    format!("{header}|---|--:|--:|--:|---|---|\n{}", lines.collect::<String>())
}

fn cells(rows: &[Row]) -> Vec<[String; 6]> {
    std::iter::once(HEADER.map(str::to_owned)).chain(rows.iter().map(Row::cells)).collect()
}

impl Row {
    fn cells(&self) -> [String; 6] {
        [
            self.figure.to_owned(),
            self.ours.to_string(),
            self.limit.map_or_else(String::new, |limit| limit.to_string()),
            self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2} x")),
            self.goal.to_string(),
            self.verdict().to_owned(),
        ]
    }

    /// `short` means that the goal is missed.
    fn verdict(&self) -> &'static str {
        match self.goal {
            Goal::Unset => "",
            _ if self.is_reached() => "ok",
            _ => "short",
        }
    }

    fn ratio(&self) -> Option<f64> {
        self.limit.map(|limit| self.ours.number() / limit.number())
    }

    /// Whether the goal is reached. A goal that needs a limit is never reached without one.
    fn is_reached(&self) -> bool {
        let ours = self.ours.number();
        let limit = self.limit.map(Measurement::number);
        match self.goal {
            Goal::UpToTimes(times) => limit.is_some_and(|limit| ours <= limit * times),
            Goal::AtLeastTimes(times) => limit.is_some_and(|limit| ours >= limit * times),
            Goal::AtMostLimitPlus(more) => limit.is_some_and(|limit| ours <= limit + more.number()),
            Goal::UpTo(most) => ours <= most.number(),
            Goal::Unset => true,
        }
    }
}

impl Measurement {
    fn number(self) -> f64 {
        match self {
            Self::Seconds(n) | Self::PerSecond(n) | Self::BytesPerSecond(n) | Self::Bytes(n) => n,
        }
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Seconds(n) if n < 0.1 => write!(f, "{:.3} ms", n * 1e3),
            Self::Seconds(n) => write!(f, "{n:.2} s"),
            Self::PerSecond(n) => write!(f, "{n:.0}/s"),
            Self::BytesPerSecond(n) => write!(f, "{:.0} MiB/s", n / f64::from(1 << 20)),
            Self::Bytes(n) if n < f64::from(1 << 20) => {
                write!(f, "{:.1} KiB", n / f64::from(1 << 10))
            }
            Self::Bytes(n) => write!(f, "{:.1} MiB", n / f64::from(1 << 20)),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpToTimes(times) => write!(f, "at most {times} x"),
            Self::AtLeastTimes(times) => write!(f, "at least {times} x"),
            Self::AtMostLimitPlus(more) => write!(f, "at most limit + {more}"),
            Self::UpTo(most) => write!(f, "at most {most}"),
            Self::Unset => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        vec![
            Row {
                figure: "one-shot, p50",
                ours: Measurement::Seconds(0.000_9),
                limit: Some(Measurement::Seconds(0.000_5)),
                goal: Goal::UpToTimes(1.5),
            },
            Row {
                figure: "output",
                ours: Measurement::BytesPerSecond(1048576.0 * 900.0),
                limit: Some(Measurement::BytesPerSecond(1048576.0 * 1800.0)),
                goal: Goal::AtLeastTimes(0.45),
            },
            Row {
                figure: "idle memory",
                ours: Measurement::Bytes(7.0 * 1048576.0),
                limit: None,
                goal: Goal::UpTo(Measurement::Bytes(8.0 * 1048576.0)),
            },
        ]
    }

    #[test]
    fn text_is_aligned() {
        let expected = "\
figure              ours       limit   ratio  to reach
one-shot, p50   0.900 ms    0.500 ms  1.80 x  at most 1.5 x    short
output         900 MiB/s  1800 MiB/s  0.50 x  at least 0.45 x  ok
idle memory      7.0 MiB                      at most 8.0 MiB  ok
";
        assert_eq!(text(&rows()), expected);
    }

    #[test]
    fn markdown_has_the_same_cells() {
        let expected = "\
| figure | ours | limit | ratio | to reach |  |
|---|--:|--:|--:|---|---|
| one-shot, p50 | 0.900 ms | 0.500 ms | 1.80 x | at most 1.5 x | short |
| output | 900 MiB/s | 1800 MiB/s | 0.50 x | at least 0.45 x | ok |
| idle memory | 7.0 MiB |  |  | at most 8.0 MiB | ok |
";
        assert_eq!(markdown(&rows()), expected);
    }

    #[test]
    fn a_goal_is_reached_at_its_bound_but_not_beyond_and_never_without_a_limit_that_it_needs() {
        let reached = |ours, limit: Option<f64>, goal| {
            let limit = limit.map(Measurement::PerSecond);
            Row { figure: "", ours: Measurement::PerSecond(ours), limit, goal }.is_reached()
        };
        let limit_plus_two = Goal::AtMostLimitPlus(Measurement::PerSecond(2.0));
        assert!(reached(3.0, Some(2.0), Goal::UpToTimes(1.5)));
        assert!(!reached(3.1, Some(2.0), Goal::UpToTimes(1.5)));
        assert!(reached(1.0, Some(2.0), Goal::AtLeastTimes(0.5)));
        assert!(!reached(0.9, Some(2.0), Goal::AtLeastTimes(0.5)));
        assert!(reached(3.0, Some(1.0), limit_plus_two));
        assert!(!reached(3.1, Some(1.0), limit_plus_two));
        assert!(!reached(1.0, None, Goal::UpToTimes(1.5)));
    }
}
