//! Reads the dates in cookies, which servers write in many forms. As RFC 6265 says, each part of a date is recognised by its form, in any
//! order. The crate httpdate does not read the form with dashes and a short name of the day, which many servers send.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// The time that a text names. `None` if the text is not a date, or has a year before 1601. Other times before 1970
/// become 1970: both are in the past.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    // `clock` is in seconds since midnight.
    let (mut clock, mut day, mut month, mut year) = (None, None, None, None);
    let is_in_part = |character: char| character.is_ascii_alphanumeric() || character == ':';
    for part in text.split(|character| !is_in_part(character)).filter(|part| !part.is_empty()) {
        let number = || part.parse::<u64>().ok();
        if clock.is_none() && part.contains(':') {
            clock = Some(seconds_of_day(part)?);
        } else if day.is_none() && part.len() <= 2 && number().is_some() {
            day = number();
        } else if month.is_none()
            && let Some(found) = month_of(part)
        {
            month = Some(found);
        } else if year.is_none() && matches!(part.len(), 2 | 4) && number().is_some() {
            year = number().map(four_digit_year);
        }
    }
    let (clock, day, month, year) = (clock?, day?, month?, year?);
    if !(1..=31).contains(&day) || year < 1601 {
        return None;
    }
    let days = days_since_1970(i64::try_from(year).ok()?, month, i64::try_from(day).ok()?);
    let seconds = u64::try_from(days).map_or(0, |days| days * 86_400 + clock);
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn seconds_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    (hours < 24 && minutes < 60 && seconds < 60).then_some(hours * 3600 + minutes * 60 + seconds)
}

/// The number of a month, from 1. Only the first three letters of its name are compared.
fn month_of(text: &str) -> Option<i64> {
    let start = text.get(..3)?.to_ascii_lowercase();
    MONTHS.iter().zip(1..).find_map(|(month, number)| (*month == start).then_some(number))
}

/// Completes a year of two digits as RFC 6265 says.
fn four_digit_year(year: u64) -> u64 {
    match year {
        70..=99 => year + 1900,
        0..=69 => year + 2000,
        _ => year,
    }
}

/// Number of days from 1970-01-01 to a date of the Gregorian calendar. The calculation lets each year begin in March,
/// so that a leap day is the last day of its year, and subtracts the days from March of year 0 to 1970-01-01.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let days_since_march = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + days_since_march - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Option<u64> {
        parse(text).map(|time| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs())
    }

    #[test]
    fn dates_in_all_forms_are_read() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "6 november 1994 08:49:37",
        ] {
            assert_eq!(seconds(text), Some(784_111_777), "{text}");
        }
        assert_eq!(seconds("Tue, 29-Feb-28 00:00:00 GMT"), Some(1_835_395_200));
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Wed, 31 Dec 1969 23:59:59 GMT"), Some(0), "a time before 1970 becomes 1970");
    }

    #[test]
    fn incomplete_and_impossible_dates_are_refused() {
        for text in [
            "",
            "0",
            "Sun, 06 Nov 1994",
            "08:49:37",
            "06 Nov 1994 25:00:00",
            "32 Nov 1994 08:49:37",
            "6 Foo 1994 08:49:37",
        ] {
            assert_eq!(seconds(text), None, "{text}");
        }
    }
}
