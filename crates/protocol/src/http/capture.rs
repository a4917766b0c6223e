//! Values taken from responses, for later requests of the same device: `{response.token}`.

use super::excerpt;
use crate::problem::Problem;
use crate::template::CAPTURED_MAX;
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a body that are kept for captures; what is behind them is not found.
pub const BODY_MAX: usize = 1 << 20;
/// Largest compiled expression.
const REGEX_MAX: usize = 1 << 20;

/// Where a value is in a response.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Capture {
    /// The value of this header field; of several, the first.
    Header(String),
    /// What this JSON pointer (RFC 6901) leads to in the body, like `/data/token`.
    Json(String),
    /// What the first group of this regular expression matches in the body, or all of it where there is no group.
    Regex(String),
}

#[derive(Debug)]
enum Rule {
    Header(Box<str>),
    Json(Box<str>),
    Regex(Box<Regex>),
}

/// The captures of one request, compiled.
#[derive(Debug, Default)]
pub(super) struct CaptureRules {
    /// The place among the device's values, the name, and where the value is.
    rules: Box<[(usize, Box<str>, Rule)]>,
}

/// What a device has taken from responses.
#[derive(Debug, Default)]
pub(super) struct CapturedValues {
    /// By the order of names; empty until there is one.
    pub values: Box<[Vec<u8>]>,
    /// Body of the response that is read, as far as it is kept.
    body: Vec<u8>,
}

impl CaptureRules {
    /// Compile `from`; `names` are those of all captures of the model, in order.
    pub(super) fn new(from: &BTreeMap<String, Capture>, names: &[String]) -> Result<Self, Problem> {
        let mut rules = Vec::new();
        for (name, capture) in from {
            let key = format!("capture.{name}");
            let fine = crate::template::is_name(name);
            let what = || format!("{name:?} cannot be a name");
            Problem::unless(fine, &key, what, "use letters, digits, - and _")?;
            let rule = capture.compile().map_err(|p| p.under(&key))?;
            let slot = names.iter().position(|one| one == name).unwrap_or_default();
            rules.push((slot, name.as_str().into(), rule));
        }
        Ok(Self { rules: rules.into() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    fn needs_body(&self) -> bool {
        self.rules.iter().any(|(_, _, rule)| !matches!(rule, Rule::Header(_)))
    }

    /// Take header fields from the complete head of a response.
    pub(super) fn head(&self, head: &[u8], into: &mut CapturedValues) {
        into.body.clear();
        for (slot, _, rule) in &self.rules {
            into.values[*slot].clear();
            if let Rule::Header(name) = rule
                && let Some(value) = field(head, name)
            {
                into.values[*slot].extend_from_slice(&value[..value.len().min(CAPTURED_MAX)]);
            }
        }
    }

    /// Keep a piece of the body.
    pub(super) fn body(&self, piece: &[u8], into: &mut CapturedValues) {
        if self.needs_body() {
            let room = BODY_MAX.saturating_sub(into.body.len()).min(piece.len());
            into.body.extend_from_slice(&piece[..room]);
        }
    }

    /// The response is complete: take what is in the body. Which is the first capture without a value, and what was there
    /// instead, if there is one.
    pub(super) fn end(&self, into: &mut CapturedValues) -> Option<String> {
        let body = std::mem::take(&mut into.body);
        let json = self.rules.iter().any(|(_, _, rule)| matches!(rule, Rule::Json(_)));
        let document: Option<serde_json::Value> =
            if json { serde_json::from_slice(&body).ok() } else { None };
        let mut missing = None;
        for (slot, name, rule) in &self.rules {
            let value = &mut into.values[*slot];
            match rule {
                Rule::Header(_) => {}
                Rule::Json(pointer) => match document.as_ref().and_then(|all| all.pointer(pointer)) {
                    Some(serde_json::Value::String(text)) => value.extend_from_slice(text.as_bytes()),
                    Some(serde_json::Value::Null) | None => {}
                    Some(other) => value.extend_from_slice(other.to_string().as_bytes()),
                },
                Rule::Regex(regex) => {
                    if let Some(found) = regex.captures(&body) {
                        let part = found.get(1).or_else(|| found.get(0));
                        value.extend_from_slice(part.map_or(&[], |part| part.as_bytes()));
                    }
                }
            }
            value.truncate(CAPTURED_MAX);
            // what would end a line of the next head is no value (RFC 9110 §5.5)
            if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                value.clear();
            }
            if value.is_empty() && missing.is_none() {
                missing = Some(format!(
                    "no value for the capture {name}: {}",
                    rule.no_match_text(&body, document.as_ref())
                ));
            }
        }
        into.body = body;
        into.body.clear();
        missing
    }
}

impl Rule {
    /// What it looked for in vain, and the beginning of the body that it looked at.
    fn no_match_text(&self, body: &[u8], document: Option<&serde_json::Value>) -> String {
        let (what, seen) = match self {
            Self::Header(name) => return format!("no header field {name} with a value that can be used"),
            Self::Json(_) if document.is_none() && body.len() >= BODY_MAX => (
                "the body is longer than the 1 MiB that captures look at".into(),
                excerpt::outline(body, None),
            ),
            Self::Json(_) if document.is_none() => {
                ("the body is no JSON".into(), excerpt::outline(body, None))
            }
            Self::Json(pointer) => {
                let what = format!("JSON pointer {pointer:?} matched no value that can be used");
                (what, excerpt::outline(body, document))
            }
            Self::Regex(regex) => (
                format!("the expression {:?} matched nothing in the body", regex.as_str()),
                excerpt::outline(body, document),
            ),
        };
        if seen.is_empty() { what } else { format!("{what}: {seen}") }
    }
}

impl Capture {
    fn compile(&self) -> Result<Rule, Problem> {
        match self {
            Self::Header(name) => {
                let what = || format!("{name:?} is no field name");
                Problem::unless(super::request::is_token(name), "header", what, "name one, like Set-Cookie")?;
                Ok(Rule::Header(name.as_str().into()))
            }
            Self::Json(pointer) => {
                let fine = pointer.is_empty() || pointer.starts_with('/');
                let what = || format!("{pointer:?} is no JSON pointer");
                Problem::unless(fine, "json", what, "write it like /data/token (RFC 6901)")?;
                Ok(Rule::Json(pointer.as_str().into()))
            }
            Self::Regex(text) => RegexBuilder::new(text)
                .size_limit(REGEX_MAX)
                .build()
                .map(|regex| Rule::Regex(Box::new(regex)))
                .map_err(|e| Problem::new("regex", format!("is no regular expression: {e}"), "correct it")),
        }
    }
}

impl CapturedValues {
    /// Room for so many values.
    pub(super) fn new(values: usize) -> Self {
        Self { values: vec![Vec::new(); values].into(), body: Vec::new() }
    }

    /// A new flow begins without values.
    pub(super) fn reset(&mut self) {
        self.values.iter_mut().for_each(Vec::clear);
        self.body.clear();
    }
}

/// The value of the first field called `name` in a response head.
fn field<'a>(head: &'a [u8], name: &str) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let colon = memchr::memchr(b':', line)?;
        let (found, value) = line.split_at(colon);
        found.trim_ascii().eq_ignore_ascii_case(name.as_bytes()).then(|| value[1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn captures(json: &str) -> (CaptureRules, CapturedValues) {
        let from: BTreeMap<String, Capture> = serde_json::from_str(json).expect(json);
        let names: Vec<String> = from.keys().cloned().collect();
        (CaptureRules::new(&from, &names).expect(json), CapturedValues::new(names.len()))
    }

    fn taken(json: &str, head: &str, body: &[&[u8]]) -> (Vec<String>, Option<String>) {
        let (captures, mut captured) = captures(json);
        captures.head(head.as_bytes(), &mut captured);
        body.iter().for_each(|piece| captures.body(piece, &mut captured));
        let missing = captures.end(&mut captured);
        let text = |value: &Vec<u8>| String::from_utf8_lossy(value).into_owned();
        (captured.values.iter().map(text).collect(), missing)
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nX-Token: a b \r\nx-token: c\r\nETag:\"e\"\r\n\r\n";

    #[test]
    fn values_come_from_fields_json_and_text() {
        let json = r#"{"a": {"header": "X-TOKEN"}, "b": {"json": "/data/0/id"}, "c": {"regex": "id\": *([0-9]+)"}, "d": {"regex": "da.a"}}"#;
        let body: &[&[u8]] = &[b"{\"data\": [{\"i", b"d\": 42}]}"];
        assert_eq!(
            taken(json, HEAD, body),
            (vec!["a b".into(), "42".into(), "42".into(), "data".into()], None)
        );
        let text = taken(r#"{"t": {"json": "/t"}, "e": {"header": "etag"}}"#, HEAD, &[br#"{"t": "x\"y"}"#]);
        assert_eq!(text, (vec!["\"e\"".into(), "x\"y".into()], None));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (json, body, missing) in [
            (r#"{"t": {"json": "/t"}}"#, &b"no json"[..], "t"),
            (r#"{"t": {"json": "/t"}}"#, b"{\"t\": null}", "t"),
            (r#"{"t": {"header": "Location"}}"#, b"", "t"),
            (r#"{"t": {"regex": "x([0-9])"}}"#, b"xy", "t"),
            // a value that would end the line of a header field
            (r#"{"t": {"json": "/t"}}"#, b"{\"t\": \"a\\r\\nb\"}", "t"),
        ] {
            let (values, said) = taken(json, HEAD, &[body]);
            assert_eq!(values, [""], "{json}");
            assert!(
                said.is_some_and(|said| said.starts_with(&format!("no value for the capture {missing}: "))),
                "{json}"
            );
        }
    }

    #[test]
    fn what_was_there_instead_is_shown_without_values() {
        let said = |json: &str, body: &[u8]| taken(json, HEAD, &[body]).1.expect(json);
        let wrong = said(
            r#"{"t": {"json": "/data/tok"}}"#,
            br#"{"data": {"token": "eyJhbGciOi", "n": 7, "ok": true}}"#,
        );
        assert_eq!(
            wrong,
            "no value for the capture t: JSON pointer \"/data/tok\" matched no value that can be used: \
             {\"data\":{\"n\":***,\"ok\":true,\"token\":\"***\"}}"
        );
        let page = b"<h1>Sign in</h1> session 0123456789abcdef0123 has ended";
        assert_eq!(
            said(r#"{"t": {"json": "/t"}}"#, page),
            "no value for the capture t: the body is no JSON: Sign in session *** has ended"
        );
        let long = said(r#"{"t": {"regex": "id=([0-9]+)"}}"#, "word ".repeat(2000).as_bytes());
        assert!(long.starts_with(
            "no value for the capture t: the expression \"id=([0-9]+)\" matched nothing in the body: word"
        ));
        assert!(long.len() < 400, "{long}");
        assert_eq!(
            said(r#"{"t": {"header": "Location"}}"#, b""),
            "no value for the capture t: no header field Location with a value that can be used"
        );
    }

    #[test]
    fn a_value_of_an_earlier_response_does_not_stay() {
        let (captures, mut captured) = captures(r#"{"t": {"regex": "[0-9]+"}}"#);
        for (body, value) in [("1", "1"), ("x", ""), ("22", "22")] {
            captures.head(HEAD.as_bytes(), &mut captured);
            captures.body(body.as_bytes(), &mut captured);
            captures.end(&mut captured);
            assert_eq!(captured.values[0], value.as_bytes());
        }
    }

    #[test]
    fn wrong_captures_are_explained() {
        for (json, why) in [
            (r#"{"t": {"json": "t"}}"#, "capture.t.json: \"t\" is no JSON pointer"),
            (r#"{"t": {"regex": "("}}"#, "capture.t.regex: is no regular expression"),
            (r#"{"t": {"header": "a b"}}"#, "capture.t.header: \"a b\" is no field name"),
            (r#"{"a.b": {"json": "/t"}}"#, "cannot be a name"),
        ] {
            let from: BTreeMap<String, Capture> = serde_json::from_str(json).expect(json);
            let said = CaptureRules::new(&from, &[]).expect_err(json).to_string();
            assert!(said.contains(why), "{said}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_breaks_it(head in prop::collection::vec(any::<u8>(), 0..200), body in prop::collection::vec(any::<u8>(), 0..200)) {
            let (captures, mut captured) = captures(r#"{"a": {"header": "x"}, "b": {"json": "/a"}, "c": {"regex": "a(b)?"}}"#);
            captures.head(&head, &mut captured);
            captures.body(&body, &mut captured);
            captures.end(&mut captured);
        }
    }
}
