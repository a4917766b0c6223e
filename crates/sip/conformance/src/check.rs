//! What must hold of a message: `TERM OPERATOR VALUE`, several with ` or ` between them.

use crate::field;
use crate::names::{Names, Saved};
use crate::wait::Wait;

/// A condition on a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    source: String,
    any: Vec<Condition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Condition {
    term: String,
    operator: Operator,
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Present,
    Absent,
    Equal,
    Unequal,
    AtMost,
    AtLeast,
    Below,
    Above,
    Begins,
    Contains,
    Lacks,
    OneOf,
}

const OPERATORS: [(&str, Operator); 12] = [
    (" is present", Operator::Present),
    (" is absent", Operator::Absent),
    (" is one of ", Operator::OneOf),
    (" begins with ", Operator::Begins),
    (" contains ", Operator::Contains),
    (" lacks ", Operator::Lacks),
    (" != ", Operator::Unequal),
    (" <= ", Operator::AtMost),
    (" >= ", Operator::AtLeast),
    (" = ", Operator::Equal),
    (" < ", Operator::Below),
    (" > ", Operator::Above),
];

impl Check {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<Self, String> {
        let any = text.split(" or ").map(|one| condition(one).ok_or(format!("{one:?} is no condition")));
        Ok(Self { source: text.to_owned(), any: any.collect::<Result<_, _>>()? })
    }

    /// Whether it holds; else what is expected and what the message has. `Err` is a fault of the test file.
    pub fn failure(&self, saved: &Saved, names: &Names<'_>) -> Result<Option<String>, String> {
        let mut found = Vec::new();
        for one in &self.any {
            let (holds, actual) = one.holds(saved, names)?;
            if holds {
                return Ok(None);
            }
            let term = names.fill(&one.term)?;
            found.push(format!("{term} is {}", actual.as_deref().unwrap_or("absent")));
        }
        found.dedup();
        let expected = names.fill(&self.source).unwrap_or_else(|_| self.source.clone());
        Ok(Some(format!("expected {expected}; {}", found.join(", "))))
    }
}

fn condition(text: &str) -> Option<Condition> {
    let found = OPERATORS.iter().filter_map(|(word, operator)| Some((text.find(word)?, *word, *operator)));
    let (at, word, operator) = found.min_by_key(|(at, word, _)| (*at, usize::MAX - word.len()))?;
    let (term, value) = (text[..at].trim().to_owned(), text[at + word.len()..].trim().to_owned());
    let unary = matches!(operator, Operator::Present | Operator::Absent);
    (!term.is_empty() && value.is_empty() == unary).then_some(Condition { term, operator, value })
}

impl Condition {
    fn holds(&self, saved: &Saved, names: &Names<'_>) -> Result<(bool, Option<String>), String> {
        let (term, value) = (names.fill(&self.term)?, names.fill(&self.value)?);
        let (actual, value) = if let Some(name) = term.strip_prefix("since ") {
            let before = names.saved(name)?;
            let ms = saved.at.saturating_duration_since(before.at).as_secs_f64() * 1000.0;
            let bound = Wait::parse(&value).ok_or_else(|| format!("{value:?} is no duration"))?;
            (Some(format!("{ms:.0}")), format!("{:.0}", bound.ms(names.t1_ms())))
        } else if term == "text" {
            (Some(saved.text()), value)
        } else {
            let message = saved.message.as_ref().ok_or("the message cannot be read")?;
            (field::term(message, &term), sum(&value))
        };
        let Some(actual) = actual else {
            return Ok((
                matches!(self.operator, Operator::Absent | Operator::Unequal | Operator::Lacks),
                None,
            ));
        };
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let order = number(&actual).zip(number(&value)).map(|(a, b)| a.total_cmp(&b));
        let equal = || {
            let same = order.map(std::cmp::Ordering::is_eq);
            same.or_else(|| field::same_uri(&actual, &value)).unwrap_or_else(|| actual.trim() == value.trim())
        };
        let folded = |text: &str| text.to_lowercase();
        let holds = match self.operator {
            Operator::Present => true,
            Operator::Absent => false,
            Operator::Equal => equal(),
            Operator::Unequal => !equal(),
            Operator::AtMost => order.is_some_and(std::cmp::Ordering::is_le),
            Operator::AtLeast => order.is_some_and(std::cmp::Ordering::is_ge),
            Operator::Below => order.is_some_and(std::cmp::Ordering::is_lt),
            Operator::Above => order.is_some_and(std::cmp::Ordering::is_gt),
            Operator::Begins => folded(&actual).starts_with(&folded(&value)),
            Operator::Contains => folded(&actual).contains(&folded(&value)),
            Operator::Lacks => !folded(&actual).contains(&folded(&value)),
            Operator::OneOf => value.split(' ').any(|one| actual == one),
        };
        Ok((holds, Some(actual)))
    }
}

/// `70 - 1` and `7 + 1` computed; everything else as it is.
fn sum(text: &str) -> String {
    let parts: Vec<&str> = text.split(' ').collect();
    let [a, sign @ ("+" | "-"), b] = parts[..] else { return text.to_owned() };
    match (a.parse::<i64>(), b.parse::<i64>()) {
        (Ok(a), Ok(b)) if sign == "+" => a.saturating_add(b).to_string(),
        (Ok(a), Ok(b)) => a.saturating_sub(b).to_string(),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        let read = |text| condition(text).map(|c| (c.term, c.operator, c.value));
        let some = |term: &str, operator, value: &str| Some((term.to_owned(), operator, value.to_owned()));
        assert_eq!(read("To.tag is present"), some("To.tag", Operator::Present, ""));
        assert_eq!(read("a = b <= c"), some("a", Operator::Equal, "b <= c"));
        assert_eq!(read("a >= {b.Max-Forwards} - 1"), some("a", Operator::AtLeast, "{b.Max-Forwards} - 1"));
        assert_eq!(read("status is one of 1 2"), some("status", Operator::OneOf, "1 2"));
        for wrong in ["", "a", "a =", " = b", "a is present b"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!((sum("70 - 1"), sum("1 + 1"), sum("a - b")), ("69".into(), "2".into(), "a - b".into()));
    }
}
