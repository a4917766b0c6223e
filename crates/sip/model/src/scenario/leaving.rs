//! Steps behind those of every scenario, which take back what a run has left with its server.

use super::{Alternative, ExpectedMessage, Header, Op, Request, StatusSet};
use crate::method::Method;
use std::time::Duration;

/// How long the end of a call is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// Final responses but the challenges, which are answered.
const FINAL: &[(u16, u16)] = &[(200, 400), (402, 406), (408, 699)];

/// Steps of each dialog: CANCEL and the answer to its INVITE; ACK, BYE and its answer.
const CANCEL: usize = 0;
const BYE: usize = 3;
const OF_DIALOG: usize = 5;

/// Where these steps are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    /// Behind the scenario's own steps.
    start: u16,
    dialogs: u8,
}

impl Leaving {
    /// Append them to the steps of a scenario of so many dialogs.
    pub fn append(ops: &mut Vec<Op>, dialogs: u8) -> Self {
        let registration = ops.iter().find_map(|op| match op {
            Op::Send(one) if one.method == Method::Register && one.expires != Some(0) => Some(one),
            _ => None,
        });
        let (uri, headers) =
            registration.map_or_else(Default::default, |one| (one.uri.clone(), one.headers.clone()));
        let start = u16::try_from(ops.len()).unwrap_or(u16::MAX);
        let this = Self { start, dialogs };
        for leg in 0..dialogs {
            let begin = this.cancel(leg);
            let invite = ops.iter().find_map(|op| match op {
                Op::Send(one) if one.method == Method::Invite && one.leg == leg => Some(one),
                _ => None,
            });
            // section 9.1: what routes the INVITE routes its CANCEL
            let (uri, headers) = invite.map_or_else(Default::default, |one| {
                let routes = one.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("Route"));
                (one.uri.clone(), routes.cloned().collect::<Box<[Header]>>())
            });
            let cancel = Request { uri, headers, ..request(Method::Cancel, leg) };
            let answers = [
                Alternative { then: Some(begin + 2), ..response(Method::Invite, leg, &[(200, 299)]) },
                Alternative { then: Some(this.end()), ..response(Method::Invite, leg, &[(300, 699)]) },
            ];
            let over = Alternative { then: Some(this.end()), ..response(Method::Bye, leg, FINAL) };
            ops.extend([
                Op::Send(Box::new(cancel)),
                Op::Expect(answers.into()),
                Op::Send(Box::new(request(Method::Ack, leg))),
                Op::Send(Box::new(request(Method::Bye, leg))),
                Op::Expect([over].into()),
            ]);
        }
        let removal = Request { uri, headers, expires: Some(0), ..request(Method::Register, 0) };
        let removed = Alternative { within: None, ..response(Method::Register, 0, &[(200, 299)]) };
        ops.extend([Op::Send(Box::new(removal)), Op::Expect([removed].into())]);
        this
    }

    /// Where the scenario's own steps end.
    pub fn scenario_end(self) -> usize {
        self.start.into()
    }

    /// Where a call of this dialog is cancelled.
    pub fn cancel(self, leg: u8) -> u16 {
        self.start + (CANCEL + OF_DIALOG * usize::from(leg)) as u16
    }

    /// Where it is ended.
    pub fn bye(self, leg: u8) -> u16 {
        self.cancel(leg) + BYE as u16
    }

    /// Where a binding is removed.
    pub fn removal(self) -> u16 {
        self.cancel(self.dialogs)
    }

    /// Behind all steps.
    pub fn end(self) -> u16 {
        self.removal() + 2
    }
}

fn request(method: Method, leg: u8) -> Request {
    Request {
        method,
        leg,
        uri: None,
        headers: Box::default(),
        body: None,
        content_type: "text/plain".into(),
        sdp: false,
        hold: false,
        expires: None,
    }
}

fn response(of: Method, leg: u8, codes: &[(u16, u16)]) -> Alternative {
    Alternative {
        leg,
        message: ExpectedMessage::Response { status: StatusSet::of(codes), of: Some(of) },
        optional: false,
        within: Some(PATIENCE),
        then: None,
        expired: None,
        captures: Box::default(),
    }
}
