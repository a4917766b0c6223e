//! Dialogs (RFC 3261 section 12): their state at both sides, forks, reliable provisional responses, session timers and REFER.

mod error;
mod fork;
mod prack;
mod refer;
mod session;

pub use error::{DialogError, MAX_FORKS};
pub use fork::{ForkEvent, Forks};
pub use prack::{ProvisionalAction, ProvisionalReceiver, ProvisionalSender};
pub use refer::{Reference, notify_body, notify_status, subscribe_state};
pub use session::{Negotiation, SessionPolicy, SessionTimer, TimerEvent, accept_offer, retry_after_422};

use crate::message::header::{CSeq, Contact, NameAddr, Via};
use crate::message::{Message, Name, StartLine};
use crate::method::Method;
use crate::uri::Uri;

/// State of a dialog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// There was a provisional response.
    Early,
    /// There was a 2xx.
    Confirmed,
    /// Over.
    Terminated,
}

/// Identifier of a dialog at one side (RFC 3261 section 12). A peer of RFC 2543 has an empty tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Id {
    /// Call-ID.
    pub call_id: String,
    /// This side's tag.
    pub local_tag: String,
    /// The peer's tag.
    pub remote_tag: String,
}

impl Id {
    /// The dialog that a request which came is in; `None` where To has no tag: it is in none.
    pub fn of_request(request: &Message) -> Option<Self> {
        let (from, to) = (request.from().ok()?, request.to().ok()?);
        Some(Self {
            call_id: request.call_id().ok()?,
            local_tag: to.tag()?.to_owned(),
            remote_tag: from.tag().unwrap_or_default().to_owned(),
        })
    }
}

/// One side of a dialog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialog {
    /// Identifier.
    pub id: Id,
    /// State.
    pub state: State,
    /// From of requests that are sent.
    pub local: NameAddr,
    /// To of requests that are sent.
    pub remote: NameAddr,
    /// The peer's Contact.
    pub remote_target: Uri,
    /// Proxies on the way, nearest first.
    pub route_set: Vec<NameAddr>,
    /// Sequence number of the last request that was sent.
    pub local_number: Option<u32>,
    /// Sequence number of the last request that came.
    pub remote_number: Option<u32>,
    /// The peer is reached over TLS alone.
    pub secure: bool,
}

impl Dialog {
    /// The client's side, by a response to its request (RFC 3261 section 12.1.2).
    pub fn client(request: &Message, response: &Message) -> Result<Self, DialogError> {
        let code = response.code().ok_or(DialogError::NotAResponse)?;
        if !(101..300).contains(&code) {
            return Err(DialogError::StatusCode(code));
        }
        let (local, remote) = (response.from()?, response.to()?);
        // In the order from the server back to the client.
        let mut route_set = response.all::<NameAddr>(Name::RecordRoute)?;
        route_set.reverse();
        let uri = request.uri().ok_or(DialogError::NotARequest)?;
        Ok(Self {
            id: id(response, &local, &remote)?,
            state: state_of(code),
            // A provisional response must have a Contact, too, but many have none.
            remote_target: match contact(response) {
                Err(_) if code < 200 && response.values(Name::Contact).next().is_none() => uri.clone(),
                target => target?,
            },
            route_set,
            local_number: Some(request.cseq()?.number),
            remote_number: None,
            secure: uri.sip().is_some_and(|uri| uri.secure),
            local,
            remote,
        })
    }

    /// The server's side, by the request and the status code and tag of its response (RFC 3261 section 12.1.1).
    pub fn server(request: &Message, code: u16, tag: &str) -> Result<Self, DialogError> {
        if !(101..300).contains(&code) {
            return Err(DialogError::StatusCode(code));
        }
        let uri = request.uri().ok_or(DialogError::NotARequest)?;
        let local = request.to()?.with("tag", Some(tag));
        let remote = request.from()?;
        Ok(Self {
            id: id(request, &local, &remote)?,
            state: state_of(code),
            remote_target: contact(request)?,
            route_set: request.all(Name::RecordRoute)?,
            local_number: None,
            remote_number: Some(request.cseq()?.number),
            secure: uri.sip().is_some_and(|uri| uri.secure),
            local,
            remote,
        })
    }

    /// A request within the dialog (RFC 3261 section 12.2.1.1). `contact` is for methods that refresh the target.
    pub fn request(&mut self, method: Method, via: &Via, contact: Option<&NameAddr>) -> Message {
        let number = self.local_number.map_or(1, |number| number.wrapping_add(1) & 0x7fff_ffff);
        self.local_number = Some(number);
        let mut request = self.build(CSeq { number, method }, via);
        if let Some(contact) = contact {
            request.push(Name::Contact, contact);
        }
        request.push(Name::ContentLength, 0);
        request
    }

    /// ACK for a 2xx of the INVITE with this sequence number (RFC 3261 section 13.2.2.4).
    pub fn ack(&self, number: u32, via: &Via) -> Message {
        let ack = self.build(CSeq { number, method: Method::Ack }, via);
        ack.with(Name::ContentLength, 0)
    }

    fn build(&self, cseq: CSeq, via: &Via) -> Message {
        let loose = |route: &NameAddr| route.uri.sip().is_none_or(|uri| uri.loose_router());
        let mut routes = self.route_set.clone();
        let mut uri = self.remote_target.clone();
        if let Some(first) = routes.first().filter(|route| !loose(route)).cloned() {
            // A strict router has its URI in the request line, and the target last.
            routes.remove(0);
            routes.push(NameAddr::new(uri));
            uri = without_headers(first.uri);
        }
        let mut request = Message::request(cseq.method.clone(), &uri);
        request.push(Name::Via, via);
        for route in routes {
            request.push(Name::Route, route);
        }
        request.push(Name::MaxForwards, 70);
        request.push(Name::From, &self.local);
        request.push(Name::To, &self.remote);
        request.push(Name::CallId, &self.id.call_id);
        request.push(Name::CSeq, cseq);
        request
    }

    /// Next hop of requests: the first route, or the target if there is none (RFC 3261 section 8.1.2).
    pub fn next_hop(&self) -> &Uri {
        self.route_set.first().map_or(&self.remote_target, |route| &route.uri)
    }

    /// A request of the peer came in the dialog (RFC 3261 section 12.2.2). ACK and CANCEL have the number of their INVITE.
    ///
    /// [`DialogError::Order`] asks for a 500.
    pub fn on_request(&mut self, request: &Message) -> Result<(), DialogError> {
        let cseq = request.cseq()?;
        if matches!(cseq.method, Method::Ack | Method::Cancel) {
            return Ok(());
        }
        if self.remote_number.is_some_and(|number| cseq.number <= number) {
            return Err(DialogError::Order);
        }
        if refreshes_target(&cseq.method) && request.values(Name::Contact).next().is_some() {
            self.remote_target = contact(request)?;
        }
        self.remote_number = Some(cseq.number);
        if cseq.method == Method::Bye {
            self.state = State::Terminated;
        }
        Ok(())
    }

    /// A response came to a request that was sent in the dialog (RFC 3261 sections 12.2.1.2, 13.2.2.4).
    pub fn on_response(&mut self, response: &Message) -> Result<(), DialogError> {
        let code = response.code().ok_or(DialogError::NotAResponse)?;
        let method = response.cseq()?.method;
        match code {
            200..300 if method == Method::Bye => self.state = State::Terminated,
            200..300 if refreshes_target(&method) => {
                if response.values(Name::Contact).next().is_some() {
                    self.remote_target = contact(response)?;
                }
                if self.state == State::Early && method == Method::Invite {
                    // RFC 3261 section 13.2.2.4: the route set is that of the 2xx.
                    self.route_set = response.all(Name::RecordRoute)?;
                    self.route_set.reverse();
                    self.state = State::Confirmed;
                }
            }
            // The peer has no such dialog any more.
            408 | 481 => self.state = State::Terminated,
            300..700 if method == Method::Invite && self.state == State::Early => {
                self.state = State::Terminated;
            }
            300..700 if method == Method::Bye => self.state = State::Terminated,
            _ => {}
        }
        Ok(())
    }

    /// The server's side sends its 2xx.
    pub fn confirm(&mut self) {
        if self.state == State::Early {
            self.state = State::Confirmed;
        }
    }
}

/// Whether a request of this method, and its 2xx, change the peer's target (RFC 3261 section 12.2, RFC 3311, RFC 6665 section 4.4.1).
pub fn refreshes_target(method: &Method) -> bool {
    matches!(method, Method::Invite | Method::Update | Method::Subscribe | Method::Notify | Method::Refer)
}

fn state_of(code: u16) -> State {
    if code < 200 { State::Early } else { State::Confirmed }
}

fn id(message: &Message, local: &NameAddr, remote: &NameAddr) -> Result<Id, DialogError> {
    Ok(Id {
        call_id: message.call_id()?,
        local_tag: local.tag().unwrap_or_default().to_owned(),
        remote_tag: remote.tag().unwrap_or_default().to_owned(),
    })
}

/// The one URI of Contact.
fn contact(message: &Message) -> Result<Uri, DialogError> {
    match message.contacts()?.as_slice() {
        [Contact::Address(address)] => Ok(address.uri.clone()),
        _ => Err(DialogError::Contact),
    }
}

/// A Request-URI has no header fields (RFC 3261 section 19.1.1).
fn without_headers(uri: Uri) -> Uri {
    match uri {
        Uri::Sip(mut sip) => {
            sip.headers.clear();
            Uri::Sip(sip)
        }
        other => other,
    }
}

impl Message {
    /// Method of a request, by its start line.
    pub(crate) fn is(&self, wanted: &Method) -> bool {
        matches!(&self.start, StartLine::Request { method, .. } if method == wanted)
    }
}

#[cfg(test)]
mod tests;
