//! Evaluates SPDX licence expressions against a list of allowed licences. Of `OR` at least one side must be allowed,
//! of `AND` both. The exception after `WITH` only adds permissions, so it needs no entry in the list.

use anyhow::{Result, bail};

/// Whether `expression` is satisfied by licences that `allows` accepts. An error if it is not an SPDX expression.
pub(super) fn is_satisfied(expression: &str, allows: impl Fn(&str) -> bool) -> Result<bool> {
    // Old crates write `MIT/Apache-2.0` for a choice.
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut parser = Parser { tokens: spaced.split_whitespace().peekable(), allows };
    let satisfied = parser.parse_choice()?;
    match parser.tokens.next() {
        None => Ok(satisfied),
        Some(token) => bail!("`{token}` is not expected here"),
    }
}

/// Evaluates each part of an expression while it parses the part.
struct Parser<'a, Tokens: Iterator<Item = &'a str>, Allows> {
    tokens: std::iter::Peekable<Tokens>,
    allows: Allows,
}

impl<'a, Tokens: Iterator<Item = &'a str>, Allows: Fn(&str) -> bool> Parser<'a, Tokens, Allows> {
    fn parse_choice(&mut self) -> Result<bool> {
        let mut satisfied = self.parse_conjunction()?;
        while self.consume("OR") {
            satisfied |= self.parse_conjunction()?;
        }
        Ok(satisfied)
    }

    fn parse_conjunction(&mut self) -> Result<bool> {
        let mut satisfied = self.parse_licence()?;
        while self.consume("AND") {
            satisfied &= self.parse_licence()?;
        }
        Ok(satisfied)
    }

    /// A licence with or without an exception, or an expression in parentheses.
    fn parse_licence(&mut self) -> Result<bool> {
        if self.consume("(") {
            let satisfied = self.parse_choice()?;
            if !self.consume(")") {
                bail!("a parenthesis is not closed");
            }
            return Ok(satisfied);
        }
        let licence = self.parse_name()?;
        if self.consume("WITH") {
            self.parse_name()?;
        }
        Ok((self.allows)(licence))
    }

    fn parse_name(&mut self) -> Result<&'a str> {
        match self.tokens.next() {
            None => bail!("a licence is missing at the end"),
            Some(token @ ("AND" | "OR" | "WITH" | "(" | ")")) => {
                bail!("a licence is missing before `{token}`")
            }
            Some(name) => Ok(name),
        }
    }

    /// Consumes the next token if it is `token`. Returns whether it was.
    fn consume(&mut self, token: &str) -> bool {
        self.tokens.next_if_eq(&token).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_satisfied_if_a_and_b_are_allowed(expression: &str) -> Result<bool> {
        is_satisfied(expression, |licence| matches!(licence, "A" | "B"))
    }

    #[test]
    fn expressions_are_evaluated() {
        for (expression, expected) in [
            ("A", true),
            ("X", false),
            ("X OR A", true),
            ("X/A", true),
            ("X AND A", false),
            ("A AND B", true),
            ("A OR X AND Y", true),
            ("(A OR X) AND Y", false),
            ("A AND (X OR (Y OR B))", true),
            ("A WITH Some-exception", true),
            ("X WITH Some-exception OR B", true),
            ("X WITH A", false),
        ] {
            assert_eq!(is_satisfied_if_a_and_b_are_allowed(expression).unwrap(), expected, "{expression}");
        }
    }

    #[test]
    fn an_invalid_expression_is_an_error() {
        for (expression, expected) in [
            ("", "a licence is missing at the end"),
            ("A OR", "a licence is missing at the end"),
            ("A AND OR B", "a licence is missing before `OR`"),
            ("(A OR B", "a parenthesis is not closed"),
            ("A B", "`B` is not expected here"),
            ("A)", "`)` is not expected here"),
        ] {
            let error = is_satisfied_if_a_and_b_are_allowed(expression).unwrap_err();
            assert_eq!(error.to_string(), expected, "{expression}");
        }
    }
}
