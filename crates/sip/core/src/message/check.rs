//! Which known header fields of a message are well formed.

use super::header::{
    CSeq, CallId, Contact, Date, Event, MediaType, NameAddr, RAck, RetryAfter, SessionExpires,
    SubscriptionState, Token, Value, Via, Warning, is_token, parse, parse_list,
};
use super::owned::{Message, StartLine};
use super::{Error, Fault, Name};
use crate::digest::{Challenge, ChallengeError, Credentials, Mismatch};
use crate::uri::Uri;

impl Message {
    /// Reads a message in which every known header field must be well formed.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let message = Self::read(bytes)?;
        match message.faults().into_iter().next() {
            None => Ok(message),
            Some(fault) => Err(fault),
        }
    }

    /// All that is wrong with the start line and the known header fields, in order.
    pub fn faults(&self) -> Vec<Error> {
        faults(self)
    }
}

fn faults(message: &Message) -> Vec<Error> {
    let mut faults = Vec::new();
    if let StartLine::Request { uri, .. } = &message.start {
        // Header fields may not be in a Request-URI (RFC 3261 section 19.1.1).
        let fine = Uri::parse(uri).is_some_and(|uri| uri.sip().is_none_or(|sip| sip.headers.is_empty()));
        if !fine {
            faults.push(Error::new(Fault::RequestUri, 0));
        }
    }
    for (at, header) in message.headers.iter().enumerate() {
        let before = &message.headers[..at];
        if header.name.single() && before.iter().any(|other| other.name == header.name) {
            faults.push(Error::new(Fault::Repeated(header.name), header.offset));
        }
        if !well_formed(header.name, &header.value) {
            faults.push(Error::new(Fault::Value(header.name), header.offset));
        }
    }
    for name in [Name::Via, Name::From, Name::To, Name::CallId, Name::CSeq] {
        if message.values(name).next().is_none() {
            faults.push(Error::new(Fault::Missing(name), 0));
        }
    }
    let cseq = message.headers.iter().find(|header| header.name == Name::CSeq);
    let read = cseq.and_then(|header| Some((parse::<CSeq>(&header.value)?, header.offset)));
    if let Some((method, (cseq, offset))) = message.method().zip(read)
        && *method != cseq.method
    {
        faults.push(Error::new(Fault::MethodMismatch, offset));
    }
    faults
}

fn well_formed(name: Name, value: &str) -> bool {
    match name {
        Name::Via => list::<Via>(value),
        Name::From | Name::To => parse::<NameAddr>(value).is_some_and(|party| valid_tag(&party)),
        Name::ReferTo | Name::ReplyTo | Name::ReferredBy => parse::<NameAddr>(value).is_some(),
        Name::Route | Name::RecordRoute | Name::Path | Name::ServiceRoute | Name::PAssertedIdentity => {
            list::<NameAddr>(value)
        }
        Name::Contact => {
            parse::<Contact>(value).is_some_and(|contact| contact.valid())
                || parse_list::<Contact>(value).is_some_and(|list| list.iter().all(Contact::valid))
        }
        Name::CallId => parse::<CallId>(value).is_some(),
        Name::CSeq => parse::<CSeq>(value).is_some(),
        Name::RAck => parse::<RAck>(value).is_some(),
        Name::RSeq => parse::<u32>(value).is_some_and(|number| number > 0),
        Name::MaxForwards => parse::<u32>(value).is_some_and(|hops| hops <= 255),
        Name::Expires | Name::MinExpires | Name::ContentLength => parse::<u32>(value).is_some(),
        Name::MinSe | Name::SessionExpires => parse::<SessionExpires>(value).is_some(),
        Name::RetryAfter => parse::<RetryAfter>(value).is_some(),
        Name::Event => parse::<Event>(value).is_some(),
        Name::SubscriptionState => parse::<SubscriptionState>(value).is_some(),
        Name::Warning => list::<Warning>(value),
        Name::Date => parse::<Date>(value).is_some(),
        Name::ContentType => parse::<MediaType>(value).is_some(),
        Name::Require | Name::ProxyRequire | Name::Unsupported => list::<Token>(value),
        Name::Supported | Name::Allow | Name::AllowEvents => value.is_empty() || list::<Token>(value),
        Name::WwwAuthenticate | Name::ProxyAuthenticate => match Challenge::parse(value.as_bytes()) {
            Ok(_) => true,
            // Of other schemes the syntax is not known.
            Err(error) => matches!(error, ChallengeError::Algorithm | ChallengeError::Qop) || !digest(value),
        },
        Name::Authorization | Name::ProxyAuthorization => match Credentials::parse(value.as_bytes()) {
            Ok(_) => true,
            Err(error) => matches!(error, Mismatch::Scheme | Mismatch::Algorithm),
        },
        _ => true,
    }
}

fn list<T: Value>(value: &str) -> bool {
    parse_list::<T>(value).is_some()
}

fn digest(value: &str) -> bool {
    value.split([' ', '\t']).next().is_some_and(|scheme| scheme.eq_ignore_ascii_case("Digest"))
}

/// A tag is a token and there once (RFC 3261 section 19.3).
fn valid_tag(party: &NameAddr) -> bool {
    let Some(tag) = party.params.param("tag") else { return true };
    !tag.quoted && tag.value.as_deref().is_some_and(is_token) && party.params.count("tag") == 1
}
