//! The time of a decision as text: RFC 3339 in UTC, with milliseconds.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 24 * 3600;

/// The text of a time, for example `2026-08-01T10:20:30.400Z`. A time before 1970 counts as 1970.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since_1970 = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since_1970.as_secs() / SECONDS_PER_DAY, since_1970.as_secs() % SECONDS_PER_DAY);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since_1970.subsec_millis())
}

/// Year, month and day of the day that is this many days after 1970-01-01.
fn date_of(mut days: u64) -> (u64, u64, u64) {
    let mut year = 1970;
    // 400 years have the same number of days wherever they begin.
    const DAYS_PER_400_YEARS: u64 = 146_097;
    year += days / DAYS_PER_400_YEARS * 400;
    days %= DAYS_PER_400_YEARS;
    while days >= days_in_year(year) {
        days -= days_in_year(year);
        year += 1;
    }
    let february = if is_leap_year(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

fn days_in_year(year: u64) -> u64 {
    if is_leap_year(year) { 366 } else { 365 }
}

fn is_leap_year(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_have_the_form_of_rfc_3339() {
        for (milliseconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_001, "2024-02-29T23:59:59.001Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (1_785_579_630_400, "2026-08-01T10:20:30.400Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(milliseconds)), text);
        }
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
