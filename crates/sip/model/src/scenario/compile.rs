//! Steps made ready to play: templates parsed, labels and repeats as jumps.

use super::capture::{self, Capture};
use super::dialogs;
use super::{AnswerStep, Assertion, ExpectStep, GotoStep, GotoWhen, SendStep, Set, StatusSet, Step, reason};
use crate::method::Method;
use protocol::data::Data;
use protocol::problem::{Problem, choices, closest};
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
    Set(Box<Set>),
    Assert(Box<Assertion>),
    Pause(Duration),
    Jump {
        to: u16,
        when: When,
    },
    /// End of a repeat: back to `start` until `count` rounds are played.
    Again {
        start: u16,
        depth: u8,
        count: u32,
    },
}

/// When a jump is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum When {
    Always,
    /// The value of this number is not empty.
    Given(usize),
    /// It is empty.
    Absent(usize),
    /// With this probability.
    Chance(f64),
}

/// A header field that a scenario adds.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub name: Box<str>,
    pub value: Template,
}

/// A request to send.
#[derive(Debug)]
pub(crate) struct Request {
    pub method: Method,
    /// Number of the dialog.
    pub leg: u8,
    pub uri: Option<Template>,
    pub headers: Box<[Header]>,
    pub body: Option<Template>,
    pub content_type: Box<str>,
    pub sdp: bool,
    pub hold: bool,
    pub expires: Option<u64>,
}

/// A response to send.
#[derive(Debug)]
pub(crate) struct Answer {
    pub leg: u8,
    pub status: u16,
    pub reason: Box<str>,
    pub headers: Box<[Header]>,
    pub body: Option<Template>,
    pub content_type: Box<str>,
    pub sdp: bool,
    pub reliable: bool,
}

/// A message that a step waits for.
#[derive(Debug)]
pub(crate) struct Alternative {
    pub leg: u8,
    pub message: ExpectedMessage,
    pub optional: bool,
    pub within: Option<Duration>,
    pub then: Option<u16>,
    /// Where to go on when the wait is over.
    pub expired: Option<u16>,
    pub captures: Box<[Capture]>,
}

/// Which message.
#[derive(Debug)]
pub(crate) enum ExpectedMessage {
    Response {
        status: StatusSet,
        of: Option<Method>,
    },
    Request(Method),
    /// Any request that may be answered.
    AnyRequest,
}

impl ExpectedMessage {
    /// Whether it is a request of this method.
    pub fn is_request(&self, method: Method) -> bool {
        match self {
            Self::Request(expected) => *expected == method,
            Self::AnyRequest => !matches!(method, Method::Ack | Method::Cancel),
            Self::Response { .. } => false,
        }
    }
}

/// A scenario, ready to play.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub ops: Vec<Op>,
    /// How many values it captures.
    pub captures: usize,
    /// How many dialogs it has.
    pub legs: u8,
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

/// Whether something is sent, waited for or paused.
fn takes_time(op: &Op) -> bool {
    match op {
        Op::Send(_) | Op::Expect(_) | Op::Answer(_) => true,
        Op::Pause(wait) => !wait.is_zero(),
        Op::Set(_) | Op::Assert(_) | Op::Jump { .. } | Op::Again { .. } => false,
    }
}

/// Steps as operations; what stands under `steps` in the profile is checked on the way.
pub(crate) fn compile(steps: &[Step], data: Option<&Data>) -> Result<Compiled, Problem> {
    let names = capture::names(steps);
    let bodies = capture::of_bodies(steps, &names);
    let dialogs = dialogs::names(steps)?;
    let legs = dialogs.len() as u8;
    let data = data.cloned().map(|data| Data { captured: names.clone().into(), ..data });
    let data = data.as_ref();
    let captures = names.len();
    let (labels, jumps) = (BTreeMap::new(), Vec::new());
    let (ops, place) = (Vec::new(), String::new());
    let mut compiler = Compiler { data, names, bodies, dialogs, ops, labels, jumps, place };
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
                None => format!("use one of: {}", choices(known)),
            };
            return Err(Problem::new(jump.key, format!("no label is called {}", jump.label), fix));
        };
        match &mut ops[jump.op] {
            Op::Jump { to, .. } => *to = *target,
            Op::Expect(alternatives) if jump.expired => {
                alternatives[jump.alternative].expired = Some(*target);
            }
            Op::Expect(alternatives) => alternatives[jump.alternative].then = Some(*target),
            _ => {}
        }
    }
    Ok(Compiled { ops, captures, legs })
}

struct Jump {
    key: String,
    label: String,
    op: usize,
    alternative: usize,
    expired: bool,
}

struct Compiler<'a> {
    data: Option<&'a Data>,
    names: Vec<String>,
    /// Which of these values keep their line breaks.
    bodies: Vec<bool>,
    dialogs: Vec<String>,
    ops: Vec<Op>,
    labels: BTreeMap<String, u16>,
    jumps: Vec<Jump>,
    /// The present step.
    place: String,
}

impl Compiler<'_> {
    fn steps(&mut self, steps: &[Step], depth: usize) -> Result<(), Problem> {
        Problem::unless(!steps.is_empty(), "", || "is empty".into(), "give at least one step")?;
        for (i, step) in steps.iter().enumerate() {
            let (at, before) = (format!("[{i}]"), self.place.len());
            self.place.push_str(&at);
            self.step(step, depth).map_err(|problem| problem.under(&at))?;
            self.place.truncate(before);
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
            Step::Set(set) => {
                let set =
                    Set::compile(set, &self.names, self.data).map_err(|problem| problem.under("set"))?;
                self.ops.push(Op::Set(Box::new(set)));
            }
            Step::Assert(assert) => {
                let assertion = Assertion::compile(assert, &format!("steps{}", self.place), self.data);
                let assertion = assertion.map_err(|problem| problem.under("assert"))?;
                self.ops.push(Op::Assert(Box::new(assertion)));
            }
            Step::Pause(pause) => self.ops.push(Op::Pause(pause.0)),
            Step::Label(name) => {
                let first = self.labels.insert(name.clone(), place(op)).is_none();
                Problem::unless(first, "label", || format!("{name} is there twice"), "rename one of them")?;
            }
            Step::Goto(goto) => {
                let (label, when) = match goto {
                    GotoStep::Label(label) => (label, When::Always),
                    GotoStep::When(when) => (&when.label, self.jump_condition(when)?),
                };
                let (key, label) = (format!("{}.goto", self.place), label.clone());
                self.jumps.push(Jump { key, label, op, alternative: 0, expired: false });
                self.ops.push(Op::Jump { to: 0, when });
            }
            Step::Repeat(repeat) => {
                Problem::unless(
                    depth < DEPTH_MAX,
                    "repeat",
                    || "repeats are nested too deeply".into(),
                    format!("nest at most {DEPTH_MAX}"),
                )?;
                let before = self.place.len();
                self.place.push_str(".repeat.steps");
                self.steps(&repeat.steps, depth + 1).map_err(|problem| problem.under("repeat.steps"))?;
                self.place.truncate(before);
                Problem::unless(
                    self.ops[op..].iter().any(takes_time),
                    "repeat.steps",
                    || "they send, expect and pause nothing".into(),
                    "add a step that does: rounds without one take no time".to_owned(),
                )?;
                self.ops.push(Op::Again { start: place(op), depth: depth as u8, count: repeat.count });
            }
        }
        Ok(())
    }

    /// The condition of a jump.
    fn jump_condition(&self, goto: &GotoWhen) -> Result<When, Problem> {
        let named = |name: &str, key: &str| {
            self.names.iter().position(|one| one == name).ok_or_else(|| {
                let fix = match closest(name, self.names.iter().map(String::as_str)) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None => "name it in the `capture` of a step, or in `set`".to_owned(),
                };
                Problem::new(format!("goto.{key}"), format!("no capture is called {name}"), fix)
            })
        };
        match (&goto.given, &goto.absent, goto.chance) {
            (None, None, None) => Ok(When::Always),
            (Some(name), None, None) => named(name, "given").map(When::Given),
            (None, Some(name), None) => named(name, "absent").map(When::Absent),
            (None, None, Some(chance)) => {
                let what = || format!("{chance} is no probability");
                Problem::unless((0.0..=1.0).contains(&chance), "goto.chance", what, "use 0 to 1")?;
                Ok(When::Chance(chance))
            }
            _ => {
                let fix = "keep one of `given`, `absent` and `chance`";
                Err(Problem::new("goto", "has several conditions", fix))
            }
        }
    }

    fn request(&self, send: &SendStep) -> Result<Request, Problem> {
        let method = method(&send.method, "method")?;
        let both = send.sdp && send.body.is_some();
        Problem::unless(!both, "body", || "is given, and sdp too".into(), "keep one of them")?;
        let holds = send.sdp || !send.hold;
        Problem::unless(holds, "hold", || "has no session description".into(), "add \"sdp\": true")?;
        let binds = method == Method::Register || matches!(method, Method::Subscribe | Method::Publish);
        let lifetime = send.expires.is_none() || binds;
        Problem::unless(
            lifetime,
            "expires",
            || format!("{method} has no lifetime"),
            "leave it out, or set it for REGISTER, SUBSCRIBE or PUBLISH",
        )?;
        let uri = send.uri.as_deref().map(|uri| line(uri, "uri", self.data)).transpose()?;
        uri.as_ref().map_or(Ok(()), |uri| self.has_one_line(uri, "uri"))?;
        Ok(Request {
            method,
            leg: self.leg(&send.dialog),
            uri,
            headers: self.headers(&send.headers)?,
            body: send.body.as_deref().map(|body| Template::with(body, "body", self.data)).transpose()?,
            content_type: send.content_type.as_deref().unwrap_or("text/plain").into(),
            sdp: send.sdp,
            hold: send.hold,
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
        let both = answer.sdp && answer.body.is_some();
        Problem::unless(!both, "body", || "is given, and sdp too".into(), "keep one of them")?;
        let provisional = !answer.reliable || (101..=199).contains(&answer.status);
        let what = || format!("{} is no provisional response above 100", answer.status);
        Problem::unless(provisional, "reliable", what, "leave it out, or use 101 to 199")?;
        Ok(Answer {
            leg: self.leg(&answer.dialog),
            status: answer.status,
            reason: reason.into(),
            headers: self.headers(&answer.headers)?,
            body: answer.body.as_deref().map(|body| Template::with(body, "body", self.data)).transpose()?,
            content_type: answer.content_type.as_deref().unwrap_or("text/plain").into(),
            sdp: answer.sdp,
            reliable: answer.reliable,
        })
    }

    fn headers(&self, headers: &BTreeMap<String, String>) -> Result<Box<[Header]>, Problem> {
        let all = headers_of(headers, self.data)?;
        for header in &all {
            self.has_one_line(&header.value, &format!("headers.{}", header.name))?;
        }
        Ok(all)
    }

    /// A captured body cannot stand in a header field or a URI.
    fn has_one_line(&self, template: &Template, key: &str) -> Result<(), Problem> {
        let body = template.captured().find(|slot| self.bodies.get(*slot).is_some_and(|body| *body));
        let Some(slot) = body else { return Ok(()) };
        let what = format!("{} is captured from a body, and may have line breaks", self.names[slot]);
        Err(Problem::new(key, what, "use it in `body`, or capture without `body: true`"))
    }

    /// Number of a dialog.
    fn leg(&self, name: &Option<String>) -> u8 {
        let name = name.as_deref().unwrap_or_default();
        self.dialogs.iter().position(|one| one == name).unwrap_or_default() as u8
    }

    fn alternative(&mut self, expect: &ExpectStep, at: &str, index: usize) -> Result<Alternative, Problem> {
        let message = match (&expect.status, &expect.request) {
            (Some(status), None) => {
                let of =
                    expect.of.as_deref().map(|of| method(of, "of").map_err(|p| p.under(at))).transpose()?;
                ExpectedMessage::Response { status: status.clone(), of }
            }
            (None, Some(request)) if request == "any" => ExpectedMessage::AnyRequest,
            (None, Some(request)) => {
                ExpectedMessage::Request(method(request, "request").map_err(|problem| problem.under(at))?)
            }
            _ => {
                let fix = "set `status` for a response, or `request` for a request";
                return Err(Problem::new(at, "names not exactly one message to wait for", fix));
            }
        };
        for (name, label, expired) in
            [("then", &expect.then, false), ("on_timeout", &expect.on_timeout, true)]
        {
            if let Some(label) = label {
                let key = format!("{}.{at}.{name}", self.place);
                let (op, label) = (self.ops.len(), label.clone());
                self.jumps.push(Jump { key, label, op, alternative: index, expired });
            }
        }
        let within = expect.timeout.map(|timeout| timeout.0);
        let limited = expect.on_timeout.is_none() || within.is_some();
        let fix = "set `timeout`";
        Problem::unless(limited, &format!("{at}.on_timeout"), || "never comes".into(), fix)?;
        let captures = capture::compile(&expect.capture, &self.names).map_err(|problem| problem.under(at))?;
        let leg = self.leg(&expect.dialog);
        Ok(Alternative {
            leg,
            message,
            optional: expect.optional,
            within,
            then: None,
            expired: None,
            captures,
        })
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
                None => format!("use one of: {}", choices(Method::NAMES.iter().copied())),
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
