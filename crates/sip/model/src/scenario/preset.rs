//! Scenarios that come with the product.

use super::{AnswerStep, ExpectStep, RepeatStep, SendStep, StatusSet, Step};
use protocol::unit::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A scenario that comes with the product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// REGISTER → 200, with the challenge where there is one.
    #[default]
    Register,
    /// Register, refresh the binding after `hold`, remove it.
    Reregister,
    /// Register, then remove the binding.
    Unregister,
    /// Register, and again each `hold` until the load ends: users who stay registered. Then remove the binding.
    StayRegistered,
    /// INVITE → 18x → 200, ACK, hold, BYE → 200.
    Call,
    /// A call that is put on hold and resumed by a re-INVITE each, after `hold`, and ended after another `hold`.
    HeldCall,
    /// INVITE → 18x, CANCEL → 200, 487.
    Cancel,
    /// INVITE → 3xx.
    Redirect,
    /// OPTIONS → 200.
    Options,
    /// MESSAGE → 200.
    Message,
    /// SUBSCRIBE → 200, NOTIFY answered.
    Subscribe,
    /// Register, then answer each call: 180, ring, 200; wait for the ACK and the BYE.
    Answer,
    /// Answer each call without having registered: 180, ring, 200; wait for the ACK and the BYE.
    Uas,
    /// INVITE with `100rel` → 183 with a session description, PRACK → 200; 200, ACK, hold, BYE → 200.
    EarlyMedia,
    /// Register, then answer each call: 183 with a session description, sent again until its PRACK comes; ring, 200; wait for the
    /// ACK and the BYE.
    AnswerEarlyMedia,
    /// Register, then answer each call with 486.
    Busy,
    /// Register, then let each call ring until it is cancelled.
    NoAnswer,
}

fn send(method: &str) -> SendStep {
    SendStep { method: method.to_owned(), ..SendStep::default() }
}

fn invite() -> Step {
    Step::Send(SendStep { sdp: true, ..send("INVITE") })
}

fn register(expires: Option<Interval>) -> [Step; 2] {
    [Step::Send(SendStep { expires, ..send("REGISTER") }), status("200")]
}

fn codes(text: &str) -> Option<StatusSet> {
    StatusSet::parse(text).ok()
}

fn status(text: &str) -> Step {
    Step::Expect(ExpectStep { status: codes(text), ..ExpectStep::default() })
}

fn passing(text: &str) -> Step {
    Step::Expect(ExpectStep { status: codes(text), optional: true, ..ExpectStep::default() })
}

fn request(method: &str) -> Step {
    Step::Expect(ExpectStep { request: Some(method.to_owned()), ..ExpectStep::default() })
}

fn answer(status: u16, sdp: bool) -> Step {
    Step::Answer(AnswerStep { status, sdp, ..AnswerStep::default() })
}

/// Register, play `steps` for each call until the load ends, and remove the binding: what is left would be called by the next run.
fn callee(steps: Vec<Step>) -> Vec<Step> {
    let [registration, registered] = register(None);
    let [removal, removed] = register(Some(Interval::default()));
    vec![registration, registered, Step::Repeat(RepeatStep { count: 0, steps }), removal, removed]
}

fn answered_call(ring: Interval) -> Vec<Step> {
    let ringing = [request("INVITE"), answer(180, false), Step::Pause(ring)];
    [&ringing[..], &[answer(200, true), request("ACK"), request("BYE"), answer(200, false)]].concat()
}

impl Preset {
    /// Its steps. `hold`: how long a call lasts, or a binding until it is refreshed; `ring`: from 180 to 200.
    pub fn steps(self, hold: Interval, ring: Interval) -> Vec<Step> {
        let hold = Step::Pause(hold);
        let removal = register(Some(Interval::default()));
        match self {
            Self::Register => register(None).into(),
            Self::Reregister => {
                [register(None).to_vec(), vec![hold], register(None).into(), removal.into()].concat()
            }
            Self::Unregister => [register(None), removal].concat(),
            Self::StayRegistered => {
                let steps = [&register(None)[..], &[hold]].concat();
                [&[Step::Repeat(RepeatStep { count: 0, steps })], &removal[..]].concat()
            }
            Self::Call => {
                let (ack, bye) = (Step::Send(send("ACK")), Step::Send(send("BYE")));
                vec![invite(), passing("180-199"), status("200"), ack, hold, bye, status("200")]
            }
            Self::HeldCall => {
                let offer = |hold| Step::Send(SendStep { sdp: true, hold, ..send("INVITE") });
                let (ack, bye) = (|| Step::Send(send("ACK")), Step::Send(send("BYE")));
                let first = vec![invite(), passing("180-199"), status("200"), ack(), hold.clone()];
                let held = vec![offer(true), status("200"), ack(), hold.clone()];
                let resumed = vec![offer(false), status("200"), ack(), hold, bye, status("200")];
                [first, held, resumed].concat()
            }
            Self::EarlyMedia => {
                let supported = [("Supported".to_owned(), "100rel".to_owned())].into();
                let invite = Step::Send(SendStep { sdp: true, headers: supported, ..send("INVITE") });
                let (ack, bye) = (Step::Send(send("ACK")), Step::Send(send("BYE")));
                vec![invite, passing("180-199"), status("200"), ack, hold, bye, status("200")]
            }
            Self::Cancel => {
                let of = |text: &str, method: &str| {
                    let of = Some(method.to_owned());
                    Step::Expect(ExpectStep { status: codes(text), of, ..ExpectStep::default() })
                };
                let cancel = Step::Send(send("CANCEL"));
                vec![invite(), status("180-199"), hold, cancel, of("200", "CANCEL"), of("487", "INVITE")]
            }
            Self::Redirect => vec![invite(), status("3xx")],
            Self::Options => vec![Step::Send(send("OPTIONS")), status("200")],
            Self::Message => {
                let body = Some("message {seq} of {device}".to_owned());
                vec![Step::Send(SendStep { body, ..send("MESSAGE") }), status("200,202")]
            }
            Self::Subscribe => {
                let headers = [("Event", "presence"), ("Accept", "application/pidf+xml")];
                let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
                let subscribe = Step::Send(SendStep { headers, ..send("SUBSCRIBE") });
                vec![subscribe, status("200,202"), request("NOTIFY"), answer(200, false)]
            }
            Self::Answer => callee(answered_call(ring)),
            Self::Uas => vec![Step::Repeat(RepeatStep { count: 0, steps: answered_call(ring) })],
            Self::AnswerEarlyMedia => {
                let progress = AnswerStep { status: 183, sdp: true, reliable: true, ..AnswerStep::default() };
                let progress = [request("INVITE"), Step::Answer(progress), Step::Pause(ring)];
                let answered = [answer(200, true), request("ACK"), request("BYE"), answer(200, false)];
                callee([&progress[..], &answered].concat())
            }
            Self::Busy => callee(vec![request("INVITE"), answer(486, false)]),
            Self::NoAnswer => callee(vec![request("INVITE"), answer(180, false), request("CANCEL")]),
        }
    }
}
