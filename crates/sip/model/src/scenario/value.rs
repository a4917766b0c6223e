//! Values that a scenario computes, and conditions that its flow has to meet.

use super::capture::expression;
use super::{AssertStep, SetStep};
use protocol::data::Data;
use protocol::problem::Problem;
use protocol::template::{CAPTURED_MAX, Template, is_name};
use regex::bytes::Regex;

/// Why a flow has failed whose condition does not hold.
pub(crate) const ASSERTION: &str = "an assertion of the scenario failed";
/// How much of a value is shown.
const SHOWN: usize = 100;

/// A value to compute.
#[derive(Debug)]
pub(crate) struct Set {
    /// Number of the value, and what it is made from.
    pub slot: usize,
    pub value: Template,
    name: Box<str>,
    regex: Option<Box<Regex>>,
    group: usize,
    add: i64,
}

/// A condition.
#[derive(Debug)]
pub(crate) struct Assertion {
    pub value: Template,
    pub is: Option<Template>,
    pub is_not: Option<Template>,
    matches: Option<Box<Regex>>,
    at_least: Option<f64>,
    at_most: Option<f64>,
    /// Where the scenario says so.
    pub at: Box<str>,
}

impl Set {
    /// Check, and prepare it.
    pub fn compile(step: &SetStep, names: &[String], data: Option<&Data>) -> Result<Self, Problem> {
        let what = || format!("{:?} cannot be a name", step.name);
        Problem::unless(is_name(&step.name), "name", what, "use letters, digits, - and _")?;
        let regex = step.regex.as_deref().map(|text| expression(text, "regex")).transpose()?;
        let groups = regex.as_ref().map_or(1, Regex::captures_len);
        let group = step.group.unwrap_or(usize::from(groups > 1));
        let what = || format!("{group} is no group of the expression");
        Problem::unless(group < groups, "group", what, format!("use 0 to {}", groups - 1))?;
        Ok(Self {
            slot: names.iter().position(|one| *one == step.name).unwrap_or_default(),
            value: Template::with(&step.value, "value", data)?,
            name: step.name.as_str().into(),
            regex: regex.map(Box::new),
            group,
            add: step.add.unwrap_or_default(),
        })
    }

    /// The value, made from the text that its template gave; why there is none.
    pub fn of(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let found = match &self.regex {
            Some(regex) => {
                let found = regex.captures(text).and_then(|all| all.get(self.group));
                found.map_or(&b""[..], |one| one.as_bytes())
            }
            None => text,
        };
        let end = found.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).unwrap_or(found.len());
        let found = found[..end.min(CAPTURED_MAX)].trim_ascii();
        if self.add == 0 {
            return Ok(found.to_vec());
        }
        let number = str::from_utf8(found).ok().and_then(|digits| digits.parse::<i64>().ok());
        let sum = number.and_then(|number| number.checked_add(self.add));
        let sum = sum.ok_or_else(|| {
            format!("{} is {:?}, which is no whole number to add to", self.name, shown(found))
        })?;
        Ok(sum.to_string().into_bytes())
    }
}

impl Assertion {
    /// Check, and prepare it; `place`: the number of the step.
    pub fn compile(step: &AssertStep, place: &str, data: Option<&Data>) -> Result<Self, Problem> {
        let limits = step.at_least.is_some() || step.at_most.is_some();
        let some = step.is.is_some() || step.is_not.is_some() || step.matches.is_some() || limits;
        let fix = "set `is`, `is_not`, `matches`, `at_least` or `at_most`";
        Problem::unless(some, "", || "has no condition".into(), fix)?;
        let template = |text: &Option<String>, key| {
            text.as_deref().map(|text| Template::with(text, key, data)).transpose()
        };
        Ok(Self {
            value: Template::with(&step.value, "value", data)?,
            is: template(&step.is, "is")?,
            is_not: template(&step.is_not, "is_not")?,
            matches: step
                .matches
                .as_deref()
                .map(|text| expression(text, "matches").map(Box::new))
                .transpose()?,
            at_least: step.at_least,
            at_most: step.at_most,
            at: step.at.as_deref().unwrap_or(place).into(),
        })
    }

    /// Why `value` does not meet the condition; `is` and `is_not`: what their templates gave. None: it does.
    pub fn fault(&self, value: &[u8], is: Option<&[u8]>, is_not: Option<&[u8]>) -> Option<String> {
        let number = str::from_utf8(value.trim_ascii()).ok().and_then(|digits| digits.parse::<f64>().ok());
        let wanted = if let Some(other) = is.filter(|other| *other != value) {
            format!("is not {:?}", shown(other))
        } else if is_not.is_some_and(|other| other == value) {
            "must not be that".to_owned()
        } else if let Some(regex) = self.matches.as_ref().filter(|regex| !regex.is_match(value)) {
            format!("does not match {}", regex.as_str())
        } else if let Some(least) = self.at_least.filter(|least| number.is_none_or(|number| number < *least))
        {
            format!("is not at least {least}")
        } else if let Some(most) = self.at_most.filter(|most| number.is_none_or(|number| number > *most)) {
            format!("is not at most {most}")
        } else {
            return None;
        };
        Some(format!("{}: the value {:?} {wanted}", self.at, shown(value)))
    }
}

fn shown(value: &[u8]) -> String {
    value[..value.len().min(SHOWN)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(value: &str, regex: Option<&str>, add: Option<i64>) -> Result<String, String> {
        let step =
            SetStep { name: "v".into(), value: value.into(), regex: regex.map(Into::into), group: None, add };
        let set = Set::compile(&step, &["v".to_owned()], None).map_err(|problem| problem.to_string())?;
        set.of(value.as_bytes()).map(|value| String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn a_value_is_cut_and_added_to() {
        assert_eq!(set("a b\r\nc", None, None).as_deref(), Ok("a b"));
        assert_eq!(set("17 INVITE", Some("^([0-9]+)"), Some(1)).as_deref(), Ok("18"));
        assert_eq!(set("17 INVITE", Some("x"), None).as_deref(), Ok(""));
        assert!(set("x", None, Some(1)).is_err_and(|why| why.contains("no whole number")));
        assert!(set("x", None, Some(-1)).is_err());
        assert!(set("x", Some("("), None).is_err_and(|why| why.contains("regex")));
    }

    #[test]
    fn a_condition_says_what_it_found() {
        let fault = |step: AssertStep, value: &str, is: Option<&str>| {
            let one = Assertion::compile(&step, "steps[3]", None).expect("fine");
            let other = |given: &Option<String>| given.as_ref().and(is).map(str::as_bytes);
            one.fault(value.as_bytes(), other(&step.is), other(&step.is_not))
        };
        let step = |value: &str| AssertStep { value: value.into(), ..AssertStep::default() };
        let is = AssertStep { is: Some("b".into()), ..step("a") };
        assert_eq!(fault(is.clone(), "b", Some("b")), None);
        let said = fault(is, "a", Some("b")).expect("another");
        assert_eq!(said, r#"steps[3]: the value "a" is not "b""#);
        let matches =
            AssertStep { matches: Some("^[0-9]+$".into()), at: Some("calls.yaml:7".into()), ..step("a") };
        assert!(fault(matches.clone(), "x", None).is_some_and(|said| said.starts_with("calls.yaml:7: ")));
        assert_eq!(fault(matches, "17", None), None);
        let range = AssertStep { at_least: Some(60.0), at_most: Some(90.0), ..step("a") };
        for (value, fine) in [("59", false), ("60", true), ("90", true), ("91", false), ("", false)] {
            assert_eq!(fault(range.clone(), value, None).is_none(), fine, "{value}");
        }
        let differs = AssertStep { is_not: Some("a".into()), ..step("a") };
        assert!(fault(differs.clone(), "a", Some("a")).is_some() && fault(differs, "c", Some("a")).is_none());
        let none = Assertion::compile(&step("a"), "steps[0]", None).expect_err("nothing is asked for");
        assert!(none.to_string().contains("no condition"));
    }
}
