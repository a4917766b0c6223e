//! Steps of a test file.

use crate::check::Check;
use crate::file::{FileError, Test};
use crate::wait::Wait;
use serde_json::{Map, Value};

/// Steps of a test, read.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub setup: Vec<Step>,
    pub steps: Vec<Step>,
}

/// A step: `AGENT VERB: VALUE` and options.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// An agent sends a request.
    Send(Send),
    /// An agent sends a response.
    Respond {
        /// Sender.
        agent: String,
        /// Status line without version, and header fields.
        text: String,
        /// The request; the last one received where none is named.
        to: Option<String>,
        /// Name to refer to the response by.
        name: Option<String>,
    },
    /// An agent sends the bytes of an earlier message again.
    Resend {
        /// Sender.
        agent: String,
        /// Name of the message.
        message: String,
    },
    /// An agent acknowledges a final response to INVITE that is none of class 2.
    Ack {
        /// Sender.
        agent: String,
        /// Name of the response.
        response: String,
    },
    /// An agent cancels a request.
    Cancel {
        /// Sender.
        agent: String,
        /// Name of the request.
        request: String,
        /// Name to refer to the CANCEL by.
        name: Option<String>,
    },
    /// An agent waits for a message.
    Expect(Expect),
    /// No message of these kinds comes.
    Silence {
        /// Receiver.
        agent: String,
        /// Kinds; none: any message.
        kinds: Vec<Kind>,
        /// How long.
        duration: Wait,
    },
    /// Counts a message that is sent again and again.
    Count(Count),
    /// Nothing is sent.
    Wait(Wait),
    /// Waits until a nonce has expired.
    WaitForNonce,
}

/// A request to send.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Send {
    /// Sender.
    pub agent: String,
    /// Request line and header fields; the method alone within a dialog.
    pub text: String,
    /// Name to refer to the request by.
    pub name: Option<String>,
    /// Header fields that are not added.
    pub omit: Vec<String>,
    /// How a challenge is answered.
    pub auth: Auth,
    /// Challenge that the request answers from the start.
    pub credentials: Option<String>,
    /// Response or request that made the dialog in which the request is sent.
    pub dialog: Option<String>,
    /// Final responses to INVITE are acknowledged.
    pub ack: bool,
}

/// How a challenge is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    /// With the user's password.
    Right,
    /// With a wrong password.
    Wrong,
    /// Not at all.
    None,
}

/// A message to wait for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expect {
    /// Receiver.
    pub agent: String,
    /// What it may be.
    pub kinds: Vec<Kind>,
    /// Name to refer to the message by.
    pub name: Option<String>,
    /// The request that a response is for; the last one sent where none is named.
    pub to: Option<String>,
    /// How long it may take.
    pub within: Wait,
    /// The message is a retransmission.
    pub again: bool,
    /// What must hold of the message.
    pub checks: Vec<Check>,
    /// What should hold of it.
    pub recommended: Vec<Check>,
    /// Responses that make the test inconclusive, and why.
    pub inconclusive: Vec<(Kind, String)>,
    /// Why the test is inconclusive where the message does not come.
    pub otherwise: Option<String>,
}

/// A message that is sent again and again.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Count {
    /// Receiver.
    pub agent: String,
    /// Kind.
    pub kinds: Vec<Kind>,
    /// How long messages are counted.
    pub duration: Wait,
    /// Times between the first messages.
    pub gaps: Vec<Wait>,
    /// How far a time may differ, as a share of it.
    pub tolerance: f64,
    /// Longest time between two messages.
    pub longest: Option<Wait>,
    /// Least number of messages.
    pub least: usize,
    /// Greatest number of messages.
    pub most: usize,
    /// No message comes later than this after the first.
    pub end: Option<Wait>,
}

/// A kind of message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Requests of a method.
    Method(String),
    /// Responses of a range of status codes.
    Status(u16, u16),
}

impl Kind {
    /// Reads `INVITE`, `200`, `4xx` or `final`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "final" => Some(Self::Status(200, 699)),
            text if text.len() == 3 && text.ends_with("xx") => {
                let class = text[..1].parse::<u16>().ok().filter(|class| (1..=6).contains(class))?;
                Some(Self::Status(class * 100, class * 100 + 99))
            }
            text if text.bytes().all(|b| b.is_ascii_digit()) => {
                let code = text.parse().ok().filter(|code| (100..=699).contains(code))?;
                Some(Self::Status(code, code))
            }
            text if !text.is_empty() && text.bytes().all(|b| b.is_ascii_uppercase()) => {
                Some(Self::Method(text.to_owned()))
            }
            _ => None,
        }
    }

    fn list(text: &str) -> Result<Vec<Self>, String> {
        let one = |text| {
            Self::parse(text).ok_or_else(|| format!("{text:?} is no method, status code, class or final"))
        };
        text.split(" or ").map(one).collect()
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Method(method) => f.write_str(method),
            Self::Status(200, 699) => f.write_str("a final response"),
            Self::Status(from, to) if from == to => write!(f, "{from}"),
            Self::Status(from, _) => write!(f, "{}xx", from / 100),
        }
    }
}

/// Options of a step. Each is taken once; what is left at the end is unknown.
struct Options(Map<String, Value>);

impl Options {
    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.0.remove(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(Value::Number(number)) => Ok(Some(number.to_string())),
            Some(_) => Err(format!("{key} is a text")),
        }
    }

    fn flag(&mut self, key: &str, default: bool) -> Result<bool, String> {
        self.0
            .remove(key)
            .map_or(Ok(default), |value| value.as_bool().ok_or(format!("{key} is true or false")))
    }

    fn texts(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.0.remove(key) {
            None => Ok(Vec::new()),
            Some(Value::Array(list)) => list
                .into_iter()
                .map(|one| one.as_str().map(str::to_owned).ok_or(format!("{key} is a list of texts")))
                .collect(),
            Some(_) => Err(format!("{key} is a list")),
        }
    }

    fn checks(&mut self, key: &str) -> Result<Vec<Check>, String> {
        self.texts(key)?.iter().map(|text| Check::parse(text)).collect()
    }

    fn wait(&mut self, key: &str) -> Result<Option<Wait>, String> {
        self.text(key)?.map(|text| wait(&text)).transpose()
    }

    fn number(&mut self, key: &str) -> Result<Option<usize>, String> {
        let value = self.0.remove(key);
        value
            .map(|value| {
                value.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or(format!("{key} is a number"))
            })
            .transpose()
    }

    fn reject_unknown_keys(self) -> Result<(), String> {
        self.0.keys().next().map_or(Ok(()), |key| Err(format!("{key} is unknown here")))
    }
}

fn wait(text: &str) -> Result<Wait, String> {
    Wait::parse(text).ok_or_else(|| format!("{text:?} is no duration such as 500ms, 2s or 64T1"))
}

const VERBS: [&str; 9] =
    ["sends", "responds", "resends", "acks", "cancels", "expects", "counts", "registers", "unregisters"];

/// Reads a step of a file, which may stand for several.
pub(crate) fn read(map: &Map<String, Value>, agents: &[String]) -> Result<Vec<Step>, String> {
    let mut options = Options(map.clone());
    if let Some(text) = options.text("wait")? {
        options.reject_unknown_keys()?;
        return Ok(vec![if text == "nonce_lifetime" {
            Step::WaitForNonce
        } else {
            Step::Wait(wait(&text)?)
        }]);
    }
    let action = map.keys().find_map(|key| {
        let (agent, verb) = key.split_once(' ')?;
        VERBS.contains(&verb).then(|| (key.clone(), agent.to_owned(), verb.to_owned()))
    });
    let (key, agent, verb) = action.ok_or("a step is `wait` or `AGENT sends`, `AGENT expects` and so on")?;
    if !agents.contains(&agent) {
        return Err(format!("{agent} is none of the test's agents"));
    }
    let value = options.text(&key)?.unwrap_or_default();
    let steps = match verb.as_str() {
        "sends" => vec![Step::Send(send(agent, value, &mut options)?)],
        "responds" => {
            let (to, name) = (options.text("to")?, options.text("as")?);
            vec![Step::Respond { agent, text: value, to, name }]
        }
        "resends" => vec![Step::Resend { agent, message: value }],
        "acks" => vec![Step::Ack { agent, response: value }],
        "cancels" => vec![Step::Cancel { agent, request: value, name: options.text("as")? }],
        "expects" if value == "nothing" => {
            let kinds = options.text("of")?.map_or(Ok(Vec::new()), |text| Kind::list(&text))?;
            let duration = options.wait("for")?.ok_or("expects: nothing needs `for`")?;
            vec![Step::Silence { agent, kinds, duration }]
        }
        "expects" => vec![Step::Expect(expect(agent, &value, &mut options)?)],
        "counts" => vec![Step::Count(count(agent, &value, &mut options)?)],
        "registers" => register(&agent, &value),
        _ => remove_bindings(&agent),
    };
    options.reject_unknown_keys()?;
    Ok(steps)
}

fn send(agent: String, text: String, options: &mut Options) -> Result<Send, String> {
    let auth = match options.text("auth")?.as_deref() {
        None => Auth::Right,
        Some("wrong") => Auth::Wrong,
        Some("none") => Auth::None,
        Some(other) => return Err(format!("auth is wrong or none, not {other}")),
    };
    Ok(Send {
        agent,
        text,
        name: options.text("as")?,
        omit: options.texts("omit")?,
        auth,
        credentials: options.text("credentials")?,
        dialog: options.text("dialog")?,
        ack: options.flag("ack", true)?,
    })
}

fn expect(agent: String, kinds: &str, options: &mut Options) -> Result<Expect, String> {
    let mut inconclusive = Vec::new();
    for text in options.texts("inconclusive")? {
        let (kind, why) = text.split_once(": ").ok_or("inconclusive is a list of `STATUS: why`")?;
        inconclusive.extend(Kind::list(kind)?.into_iter().map(|kind| (kind, why.to_owned())));
    }
    Ok(Expect {
        agent,
        kinds: Kind::list(kinds)?,
        name: options.text("as")?,
        to: options.text("to")?,
        within: options.wait("within")?.unwrap_or(Wait::Ms(3000.0)),
        again: options.flag("again", false)?,
        checks: options.checks("check")?,
        recommended: options.checks("recommended")?,
        inconclusive,
        otherwise: options.text("otherwise")?,
    })
}

fn count(agent: String, kinds: &str, options: &mut Options) -> Result<Count, String> {
    let percent = options.number("tolerance_percent")?.unwrap_or(20);
    Ok(Count {
        agent,
        kinds: Kind::list(kinds)?,
        duration: options.wait("for")?.ok_or("counts needs `for`")?,
        gaps: options.texts("gaps")?.iter().map(|text| wait(text)).collect::<Result<_, _>>()?,
        tolerance: percent as f64 / 100.0,
        longest: options.wait("longest_gap")?,
        least: options.number("at_least")?.unwrap_or(1),
        most: options.number("at_most")?.unwrap_or(usize::MAX),
        end: options.wait("end")?,
    })
}

/// A binding of the user's address of record to the agent.
fn register(agent: &str, contact: &str) -> Vec<Step> {
    let contact = if contact.is_empty() { format!("<{{{agent}.contact}}>") } else { contact.to_owned() };
    accepted(agent, format!("REGISTER sip:{{domain}}\nContact: {contact}\nExpires: 600"), &[200])
}

/// All bindings removed; ejabberd answers 404 where there are none (RFC 3261 section 10.3 has 200), and then it is as well.
fn remove_bindings(agent: &str) -> Vec<Step> {
    accepted(agent, "REGISTER sip:{domain}\nContact: *\nExpires: 0".into(), &[200, 404])
}

fn accepted(agent: &str, text: String, statuses: &[u16]) -> Vec<Step> {
    let send = Send {
        agent: agent.to_owned(),
        text,
        name: None,
        omit: Vec::new(),
        auth: Auth::Right,
        credentials: None,
        dialog: None,
        ack: true,
    };
    let expect = Expect {
        agent: agent.to_owned(),
        kinds: statuses.iter().map(|status| Kind::Status(*status, *status)).collect(),
        name: None,
        to: None,
        within: Wait::Ms(3000.0),
        again: false,
        checks: Vec::new(),
        recommended: Vec::new(),
        inconclusive: Vec::new(),
        otherwise: None,
    };
    vec![Step::Send(send), Step::Expect(expect)]
}

impl Test {
    /// Reads the steps.
    pub(crate) fn plan(&self) -> Result<Plan, FileError> {
        let wrong = |place: String, what: String| FileError { at: format!("{} {place}", self.id), what };
        for need in &self.needs {
            if !["password", "other", "nonce_lifetime"].contains(&need.as_str()) {
                return Err(wrong("needs".into(), format!("{need} is no option of a run")));
            }
        }
        if self.agents.is_empty() {
            return Err(wrong("agents".into(), "a test needs a user agent".into()));
        }
        let all = |list: &[Map<String, Value>], name: &str| {
            let mut steps = Vec::<Step>::new();
            for (at, one) in list.iter().enumerate() {
                let read = read(one, &self.agents);
                steps.extend(read.map_err(|what| wrong(format!("{name} {}", at + 1), what))?);
            }
            Ok(steps)
        };
        Ok(Plan { setup: all(&self.setup, "setup")?, steps: all(&self.steps, "step")? })
    }
}
