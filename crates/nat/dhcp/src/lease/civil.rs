//! Dates of the Gregorian calendar in UTC.

/// Seconds since 1970 of `YYYY/MM/DD` and `HH:MM:SS`; a leap second is the next one.
pub(super) fn seconds(date: &str, time: &str) -> Option<u64> {
    let [year, month, day] = numbers(date, '/')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1970..=9999).contains(&year) || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60
    {
        return None;
    }
    // Years from March on, so that the leap day is a year's last: 153 days in each five months.
    let from_march = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = 365 * from_march + from_march / 4 - from_march / 100 + from_march / 400 + day_of_year;
    // 719,468 days lie between 1 March of year 0 and 1970.
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Three numbers.
fn numbers(text: &str, between: char) -> Option<[u64; 3]> {
    let mut parts = text.split(between).map(|part| {
        let digits = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse().ok()).flatten()
    });
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_what_date_says() {
        // date -u -d '2024-02-29 23:59:59' +%s
        assert_eq!(seconds("2024/02/29", "23:59:59"), Some(1_709_251_199));
        assert_eq!(seconds("1970/01/01", "00:00:00"), Some(0));
        assert_eq!(seconds("2000/03/01", "12:00:00"), Some(951_912_000));
        assert_eq!(seconds("2038/01/19", "03:14:08"), Some(1 << 31));
        assert_eq!(seconds("9999/12/31", "23:59:59"), Some(253_402_300_799));
    }

    #[test]
    fn what_is_no_date_is_none() {
        for date in ["2023/02/29", "1900/02/29", "1969/12/31", "2024/13/01", "2024/04/31", "2024/1", "a/b/c"]
        {
            assert_eq!(seconds(date, "00:00:00"), None, "{date}");
        }
        for time in ["24:00:00", "00:60:00", "00:00:61", "00:00", "00:00:00:00", "-1:00:00"] {
            assert_eq!(seconds("2024/01/01", time), None, "{time}");
        }
    }
}
