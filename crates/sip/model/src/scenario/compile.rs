//! Steps made ready to play: templates parsed, labels and repeats as jumps.

use super::{AnswerStep, ExpectStep, SendStep, StatusSet, Step, reason};
use crate::method::Method;
use protocol::data::Data;
use protocol::problem::{Problem, closest, listed};
use protocol::template::Template;
use protocol::unit::Interval;
use std::collections::BTreeMap;
use std::time::Duration;

/// Most steps, with those inside of repeats.
const STEPS_MAX: usize = 1024;
/// Deepest repeat inside of repeats.
pub(crate) const DEPTH_MAX: usize = 4;

/// A step, ready to play.
#[derive(Debug)]
pub(crate) enum Op {
    Send(Box<Request>),
    Expect(Box<[Alternative]>),
    Answer(Box<Answer>),
    Pause(Duration),
    Jump(u16),
    /// End of a repeat: back to `start` until `count` rounds are played.
    Again {
        start: u16,
        depth: u8,
        count: u32,
    },
}

/// A header field that a scenario adds.
#[derive(Debug)]
pub(crate) struct Header {
    pub name: Box<str>,
    pub value: Template,
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Request {
    pub method: Method,
    pub uri: Option<Template>,
    pub headers: Box<[Header]>,
    pub body: Option<Template>,
    pub content_type: Box<str>,
    pub sdp: bool,
    pub expires: Option<u64>,
}

/// A response to send.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub reason: Box<str>,
    pub headers: Box<[Header]>,
    pub sdp: bool,
}

/// A message that a step waits for.
#[derive(Debug)]
pub(crate) struct Alternative {
    pub wanted: Wanted,
    pub optional: bool,
    pub within: Option<Duration>,
    pub then: Option<u16>,
}

/// Which message.
#[derive(Debug)]
pub(crate) enum Wanted {
    Response { status: StatusSet, of: Option<Method> },
    Request(Method),
}

/// Header fields that a user agent sets itself.
const OWN: &[&str] = &[
    "via",
    "v",
    "from",
    "f",
    "to",
    "t",
    "call-id",
    "i",
    "cseq",
    "max-forwards",
    "route",
    "record-route",
    "contact",
    "m",
    "content-length",
    "l",
    "content-type",
    "c",
    "authorization",
    "proxy-authorization",
    "expires",
];

/// Steps as operations; what stands under `steps` in the profile is checked on the way.
pub(crate) fn compile(steps: &[Step], data: Option<&Data>) -> Result<Vec<Op>, Problem> {
    let mut compiler = Compiler { data, ops: Vec::new(), labels: BTreeMap::new(), jumps: Vec::new() };
    compiler.steps(steps, 0)?;
    let Compiler { mut ops, labels, jumps, .. } = compiler;
    Problem::unless(
        ops.len() <= STEPS_MAX,
        "",
        || format!("{} steps are too many", ops.len()),
        format!("use at most {STEPS_MAX}, or repeat"),
    )?;
    for jump in jumps {
        let Some(target) = labels.get(&jump.label) else {
            let known = labels.keys().map(String::as_str);
            let fix = match closest(&jump.label, known.clone()) {
                Some(meant) => format!("did you mean {meant}?"),
                None if labels.is_empty() => "add a step {\"label\": …} where to go on".to_owned(),
                None => format!("use one of: {}", listed(known)),
            };
            return Err(Problem::new(jump.key, format!("no label is called {}", jump.label), fix));
        };
        match &mut ops[jump.op] {
            Op::Jump(to) => *to = *target,
            Op::Expect(alternatives) => alternatives[jump.alternative].then = Some(*target),
            _ => {}
        }
    }
    Ok(ops)
}

struct Jump {
    key: String,
    label: String,
    op: usize,
    alternative: usize,
}

struct Compiler<'a> {
    data: Option<&'a Data>,
    ops: Vec<Op>,
    labels: BTreeMap<String, u16>,
    jumps: Vec<Jump>,
}

impl Compiler<'_> {
    fn steps(&mut self, steps: &[Step], depth: usize) -> Result<(), Problem> {
        Problem::unless(!steps.is_empty(), "", || "is empty".into(), "give at least one step")?;
        for (i, step) in steps.iter().enumerate() {
            self.step(step, depth).map_err(|problem| problem.under(&format!("[{i}]")))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, depth: usize) -> Result<(), Problem> {
        let op = self.ops.len();
        match step {
            Step::Send(send) => {
                let request = self.request(send).map_err(|problem| problem.under("send"))?;
                self.ops.push(Op::Send(Box::new(request)));
            }
            Step::Expect(expect) => {
                let alternative = self.alternative(expect, "expect", 0)?;
                self.ops.push(Op::Expect([alternative].into()));
            }
            Step::ExpectAny(all) => {
                Problem::unless(!all.is_empty(), "expect_any", || "is empty".into(), "give at least one")?;
                let alternatives = all.iter().enumerate();
                let alternatives =
                    alternatives.map(|(i, one)| self.alternative(one, &format!("expect_any[{i}]"), i));
                let alternatives = alternatives.collect::<Result<Vec<_>, _>>()?;
                self.ops.push(Op::Expect(alternatives.into()));
            }
            Step::Answer(answer) => {
                let answer = self.answer(answer).map_err(|problem| problem.under("answer"))?;
                self.ops.push(Op::Answer(Box::new(answer)));
            }
            Step::Pause(pause) => self.ops.push(Op::Pause(pause.0)),
            Step::Label(name) => {
                let first = self.labels.insert(name.clone(), place(op)).is_none();
                Problem::unless(first, "label", || format!("{name} is there twice"), "rename one of them")?;
            }
            Step::Goto(label) => {
                self.jumps.push(Jump { key: "goto".into(), label: label.clone(), op, alternative: 0 });
                self.ops.push(Op::Jump(0));
            }
            Step::Repeat(repeat) => {
                Problem::unless(
                    depth < DEPTH_MAX,
                    "repeat",
                    || "repeats are nested too deeply".into(),
                    format!("nest at most {DEPTH_MAX}"),
                )?;
                self.steps(&repeat.steps, depth + 1).map_err(|problem| problem.under("repeat.steps"))?;
                self.ops.push(Op::Again { start: place(op), depth: depth as u8, count: repeat.count });
            }
        }
        Ok(())
    }

    fn request(&self, send: &SendStep) -> Result<Request, Problem> {
        let method = method(&send.method, "method")?;
        let both = send.sdp && send.body.is_some();
        Problem::unless(!both, "body", || "is given, and sdp too".into(), "keep one of them")?;
        let binds = method == Method::Register || matches!(method, Method::Subscribe | Method::Publish);
        let lifetime = send.expires.is_none() || binds;
        Problem::unless(
            lifetime,
            "expires",
            || format!("{method} has no lifetime"),
            "leave it out, or set it for REGISTER, SUBSCRIBE or PUBLISH",
        )?;
        Ok(Request {
            method,
            uri: send.uri.as_deref().map(|uri| line(uri, "uri", self.data)).transpose()?,
            headers: self.headers(&send.headers)?,
            body: send.body.as_deref().map(|body| Template::with(body, "body", self.data)).transpose()?,
            content_type: send.content_type.as_deref().unwrap_or("text/plain").into(),
            sdp: send.sdp,
            expires: send.expires.map(seconds),
        })
    }

    fn answer(&self, answer: &AnswerStep) -> Result<Answer, Problem> {
        let known = (100..=699).contains(&answer.status);
        Problem::unless(
            known,
            "status",
            || format!("{} is no status code", answer.status),
            "use 100 to 699",
        )?;
        let reason = answer.reason.as_deref().unwrap_or_else(|| reason(answer.status));
        Problem::unless(
            reason.bytes().all(|b| b >= b' ' && b != 0x7f),
            "reason",
            || "has a control character".into(),
            "keep it on one line",
        )?;
        Ok(Answer {
            status: answer.status,
            reason: reason.into(),
            headers: self.headers(&answer.headers)?,
            sdp: answer.sdp,
        })
    }

    fn headers(&self, headers: &BTreeMap<String, String>) -> Result<Box<[Header]>, Problem> {
        headers_of(headers, self.data)
    }

    fn alternative(&mut self, expect: &ExpectStep, at: &str, index: usize) -> Result<Alternative, Problem> {
        let wanted = match (&expect.status, &expect.request) {
            (Some(status), None) => {
                let of =
                    expect.of.as_deref().map(|of| method(of, "of").map_err(|p| p.under(at))).transpose()?;
                Wanted::Response { status: status.clone(), of }
            }
            (None, Some(request)) => {
                Wanted::Request(method(request, "request").map_err(|problem| problem.under(at))?)
            }
            _ => {
                let fix = "set `status` for a response, or `request` for a request";
                return Err(Problem::new(at, "names not exactly one message to wait for", fix));
            }
        };
        if let Some(label) = &expect.then {
            let (key, op) = (format!("{at}.then"), self.ops.len());
            self.jumps.push(Jump { key, label: label.clone(), op, alternative: index });
        }
        let within = expect.timeout.map(|timeout| timeout.0);
        Ok(Alternative { wanted, optional: expect.optional, within, then: None })
    }
}

/// Header fields that a profile adds, checked.
pub(crate) fn headers_of(
    headers: &BTreeMap<String, String>,
    data: Option<&Data>,
) -> Result<Box<[Header]>, Problem> {
    let mut all = Vec::new();
    for (name, value) in headers {
        let key = format!("headers.{name}");
        let token = |b: u8| b.is_ascii_alphanumeric() || b"-.!%*_+`'~".contains(&b);
        Problem::unless(
            !name.is_empty() && name.bytes().all(token),
            &key,
            || "is no name of a header field".into(),
            "use letters, digits and -",
        )?;
        let own = OWN.contains(&name.to_ascii_lowercase().as_str());
        Problem::unless(!own, &key, || format!("{name} is set by the user agent"), "leave it out")?;
        all.push(Header { name: name.as_str().into(), value: line(value, &key, data)? });
    }
    Ok(all.into())
}

/// A template of one line: what it renders cannot begin another header field.
pub(crate) fn line(text: &str, key: &str, data: Option<&Data>) -> Result<Template, Problem> {
    let fine = |b: u8| b >= b' ' && b != 0x7f || b == b'\t';
    Problem::unless(
        text.bytes().all(fine),
        key,
        || "has a line break or another control character".into(),
        "keep it on one line",
    )?;
    let template = Template::with(text, key, data)?;
    template.cells_are(key, fine)?;
    Ok(template)
}

fn method(name: &str, key: &str) -> Result<Method, Problem> {
    match Method::of(name.as_bytes()) {
        Method::Unknown => {
            let fix = match closest(&name.to_ascii_uppercase(), Method::NAMES.iter().copied()) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("use one of: {}", listed(Method::NAMES.iter().copied())),
            };
            Err(Problem::new(key, format!("{name} is no method of SIP"), fix))
        }
        known => Ok(known),
    }
}

fn place(op: usize) -> u16 {
    u16::try_from(op).unwrap_or(u16::MAX)
}

pub(crate) fn seconds(interval: Interval) -> u64 {
    interval.ns() / 1_000_000_000
}
