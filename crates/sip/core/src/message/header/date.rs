use super::Value;
use std::fmt;

/// Date (RFC 3261 section 20.17): a time in GMT, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Date {
    /// Seconds since 1970-01-01.
    pub unix: i64,
}

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

impl Value for Date {
    /// `rfc1123-date`; names of days and months in their case, any other zone than GMT refused. The day of the week must be right.
    fn read(input: &str) -> Option<(Self, &str)> {
        let text = input.get(..29)?;
        let fits = text.bytes().zip("Aaa, dd Aaa dddd dd:dd:dd GMT".bytes()).all(|(byte, form)| match form {
            b'd' => byte.is_ascii_digit(),
            b'A' => byte.is_ascii_uppercase(),
            b'a' => byte.is_ascii_lowercase(),
            other => byte == other,
        });
        fits.then_some(())?;
        let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
        let month = MONTHS.iter().position(|name| text.get(8..11) == Some(name))?;
        let (year, day) = (number(12, 16)?, number(5, 7)?);
        let (hour, minute, second) = (number(17, 19)?, number(20, 22)?, number(23, 25)?);
        let days = days_since_1970(year, i64::try_from(month).ok()? + 1, day);
        let date = Self { unix: ((days * 24 + hour) * 60 + minute) * 60 + second };
        // Written again it is the same: no 30th of February, no 25th hour, the right day of the week.
        (date.to_string() == text).then(|| (date, &input[29..]))
    }
}

/// Days of the proleptic Gregorian calendar; years begin in March, so that a leap day is a year's last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted + 2) / 5 + 1)
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, seconds) = (self.unix.div_euclid(86_400), self.unix.rem_euclid(86_400));
        let (year, month, day) = civil(days);
        let name = |names: &[&'static str], at: i64| {
            usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or_default()
        };
        let (weekday, month) = (name(&DAYS, days.rem_euclid(7)), name(&MONTHS, month - 1));
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
    }
}
