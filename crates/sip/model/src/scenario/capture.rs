//! Values that steps take from messages: a header field, or what a regular expression matches.

use super::{CaptureStep, Step};
use protocol::problem::Problem;
use protocol::template::{CAPTURED_MAX, is_name};
use regex::bytes::{Regex, RegexBuilder};
use sip_core::message::{Fields, scan};
use std::collections::{BTreeMap, BTreeSet};

/// Largest compiled expression.
const REGEX_MAX: usize = 1 << 20;

/// A capture, ready to play.
#[derive(Debug)]
pub(crate) struct Capture {
    /// Number of the value.
    pub slot: usize,
    pub name: Box<str>,
    header: Option<Box<str>>,
    body: bool,
    regex: Option<Box<Regex>>,
    group: usize,
    pub required: bool,
}

/// Names of all values that steps capture or make, in the order of their numbers.
pub(super) fn names(steps: &[Step]) -> Vec<String> {
    fn visit<'a>(steps: &'a [Step], all: &mut BTreeSet<&'a String>) {
        for step in steps {
            match step {
                Step::Expect(expect) => all.extend(expect.capture.keys()),
                Step::ExpectAny(several) => all.extend(several.iter().flat_map(|one| one.capture.keys())),
                Step::Set(set) => drop(all.insert(&set.name)),
                Step::Repeat(repeat) => visit(&repeat.steps, all),
                _ => {}
            }
        }
    }
    let mut all = BTreeSet::new();
    visit(steps, &mut all);
    all.into_iter().cloned().collect()
}

/// Which of these values some step takes from a body, by number.
pub(super) fn of_bodies(steps: &[Step], names: &[String]) -> Vec<bool> {
    fn mark_declared(captures: &BTreeMap<String, CaptureStep>, names: &[String], all: &mut [bool]) {
        for (name, _) in captures.iter().filter(|(_, one)| one.body) {
            if let Some(slot) = names.iter().position(|one| one == name) {
                all[slot] = true;
            }
        }
    }
    fn visit(steps: &[Step], names: &[String], all: &mut [bool]) {
        for step in steps {
            match step {
                Step::Expect(expect) => mark_declared(&expect.capture, names, all),
                Step::ExpectAny(several) => {
                    several.iter().for_each(|one| mark_declared(&one.capture, names, all))
                }
                Step::Repeat(repeat) => visit(&repeat.steps, names, all),
                _ => {}
            }
        }
    }
    let mut all = vec![false; names.len()];
    visit(steps, names, &mut all);
    all
}

/// The captures of one step.
pub(super) fn compile(
    steps: &BTreeMap<String, CaptureStep>,
    names: &[String],
) -> Result<Box<[Capture]>, Problem> {
    let mut all = Vec::new();
    for (name, step) in steps {
        let key = format!("capture.{name}");
        let what = || format!("{name:?} cannot be a name");
        Problem::unless(is_name(name), &key, what, "use letters, digits, - and _")?;
        let somewhere = step.header.is_some() || step.regex.is_some() || step.body;
        let fix = "set `header`, `regex` or `body`";
        Problem::unless(somewhere, &key, || "looks for nothing".into(), fix)?;
        let one = step.header.is_none() || !step.body;
        Problem::unless(one, &key, || "looks in a header field and in the body".into(), "keep one of them")?;
        let regex =
            step.regex.as_deref().map(|text| expression(text, &format!("{key}.regex"))).transpose()?;
        let groups = regex.as_ref().map_or(1, Regex::captures_len);
        let group = step.group.unwrap_or(usize::from(groups > 1));
        let what = || format!("{group} is no group of the expression");
        Problem::unless(group < groups, &format!("{key}.group"), what, format!("use 0 to {}", groups - 1))?;
        all.push(Capture {
            slot: names.iter().position(|one| one == name).unwrap_or_default(),
            name: name.as_str().into(),
            header: step.header.as_deref().map(Into::into),
            body: step.body,
            regex: regex.map(Box::new),
            group,
            required: step.required,
        });
    }
    Ok(all.into())
}

pub(super) fn expression(text: &str, key: &str) -> Result<Regex, Problem> {
    let compiled = RegexBuilder::new(text).unicode(false).size_limit(REGEX_MAX).build();
    compiled.map_err(|error| {
        let what = error.to_string();
        let what = what.lines().last().unwrap_or_default().trim().to_owned();
        Problem::new(key, what, "write it as for grep -E")
    })
}

impl Capture {
    /// The value in a message. Unless it is of the body, it ends at a line break: it may go into a header field.
    pub fn value<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        let place = match &self.header {
            Some(name) => field(message, name)?,
            None if self.body => scan(message).ok()?.body,
            None => message,
        };
        let value = match &self.regex {
            Some(regex) => regex.captures(place)?.get(self.group)?.as_bytes(),
            None => place,
        };
        if self.body {
            return (!value.is_empty()).then(|| &value[..value.len().min(CAPTURED_MAX)]);
        }
        let end = value.iter().position(|byte| matches!(byte, b'\r' | b'\n' | 0)).unwrap_or(value.len());
        let value = value[..end.min(CAPTURED_MAX)].trim_ascii();
        (!value.is_empty()).then_some(value)
    }
}

/// The value of the first header field of this name.
fn field<'a>(message: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut fields = Fields::new(message, scan(message).ok()?.fields);
    while let Ok(Some(field)) = fields.next() {
        let same = field.written.eq_ignore_ascii_case(name.as_bytes())
            || field.name != sip_core::Name::Other && field.name == sip_core::Name::of(name.as_bytes());
        if same {
            return Some(field.value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &[u8] = b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP a;branch=z9hG4bKx\r\nf: <sip:ua25@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
        Call-ID: 1\r\nCSeq: 1 INVITE\r\nX-Word: one two\r\nContent-Length: 15\r\n\r\no=user 7 8 IN\r\n";

    fn capture(step: CaptureStep) -> Result<Capture, String> {
        let steps = [("v".to_owned(), step)].into();
        let all = compile(&steps, &["v".to_owned()]).map_err(|problem| problem.to_string())?;
        Ok(all.into_iter().next().expect("one"))
    }

    fn of(header: Option<&str>, regex: Option<&str>, group: Option<usize>) -> Option<String> {
        let (header, regex) = (header.map(str::to_owned), regex.map(str::to_owned));
        let one = capture(CaptureStep { header, regex, group, ..CaptureStep::default() }).expect("fine");
        one.value(MESSAGE).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    #[test]
    fn a_body_keeps_its_line_breaks() {
        let of = |regex: Option<&str>| {
            let regex = regex.map(str::to_owned);
            let one = capture(CaptureStep { regex, body: true, ..CaptureStep::default() }).expect("fine");
            one.value(MESSAGE).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        assert_eq!(of(None).as_deref(), Some("o=user 7 8 IN\r\n"));
        assert_eq!(of(Some("[0-9](?s:.*)")).as_deref(), Some("7 8 IN\r\n"));
        assert_eq!(of(Some("X-Word")), None);
    }

    #[test]
    fn values_of_header_fields_and_expressions() {
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(Some("x-word"), None, None), some("one two"));
        assert_eq!(of(Some("From"), Some("ua25"), None), some("ua25"));
        assert_eq!(of(None, Some("o=([[:alnum:]]*) ([[:alnum:]]*)"), Some(2)), some("7"));
        assert_eq!(of(None, Some("o=([a-z]*)"), None), some("user"));
        assert_eq!(of(None, Some("o=([a-z]*)"), Some(0)), some("o=user"));
        assert_eq!(of(None, Some("X-Word: (?s:.*)"), None), some("X-Word: one two"));
        assert_eq!(of(Some("Subject"), None, None), None);
        assert_eq!(of(Some("To"), Some("nobody"), None), None);
    }

    #[test]
    fn faults_are_named() {
        let regex =
            |text: &str, group| CaptureStep { regex: Some(text.into()), group, ..CaptureStep::default() };
        for (step, says) in [
            (CaptureStep::default(), "looks for nothing"),
            (regex("(", None), "capture.v.regex"),
            (regex("(a)", Some(2)), "2 is no group"),
        ] {
            let said = capture(step).expect_err(says);
            assert!(said.contains(says), "{said}");
        }
    }
}
