use std::fmt;

macro_rules! names {
    ($($variant:ident $text:literal $compact:literal $single:literal;)*) => {
        /// Name of a header field.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
            /// Any other name.
            Other,
        }

        const TABLE: &[(Name, &str, u8, bool)] = &[$((Name::$variant, $text, $compact, $single),)*];
    };
}

// Name, text, compact form (0: none), whether it may appear once only.
names! {
    To "To" b't' true;
    Via "Via" b'v' false;
    CSeq "CSeq" 0 true;
    Date "Date" 0 true;
    From "From" b'f' true;
    Path "Path" 0 false;
    RAck "RAck" 0 true;
    RSeq "RSeq" 0 true;
    Allow "Allow" 0 false;
    Event "Event" b'o' true;
    Route "Route" 0 false;
    Accept "Accept" 0 false;
    MinSe "Min-SE" 0 true;
    Reason "Reason" 0 false;
    Server "Server" 0 true;
    CallId "Call-ID" b'i' true;
    Contact "Contact" b'm' false;
    Expires "Expires" 0 true;
    Privacy "Privacy" 0 true;
    Require "Require" 0 false;
    Subject "Subject" b's' true;
    Warning "Warning" 0 false;
    Identity "Identity" b'y' false;
    Priority "Priority" 0 true;
    ReferTo "Refer-To" b'r' true;
    ReplyTo "Reply-To" 0 true;
    Replaces "Replaces" 0 true;
    SipEtag "SIP-ETag" 0 true;
    Supported "Supported" b'k' false;
    Timestamp "Timestamp" 0 true;
    AlertInfo "Alert-Info" 0 false;
    ErrorInfo "Error-Info" 0 false;
    UserAgent "User-Agent" 0 true;
    InReplyTo "In-Reply-To" 0 false;
    MinExpires "Min-Expires" 0 true;
    ReferredBy "Referred-By" b'b' true;
    RetryAfter "Retry-After" 0 true;
    Unsupported "Unsupported" 0 false;
    AllowEvents "Allow-Events" b'u' false;
    ContentType "Content-Type" b'c' true;
    MaxForwards "Max-Forwards" 0 true;
    MimeVersion "MIME-Version" 0 true;
    Organization "Organization" 0 true;
    RecordRoute "Record-Route" 0 false;
    SipIfMatch "SIP-If-Match" 0 true;
    Authorization "Authorization" 0 false;
    ProxyRequire "Proxy-Require" 0 false;
    ServiceRoute "Service-Route" 0 false;
    AcceptContact "Accept-Contact" b'a' false;
    ContentLength "Content-Length" b'l' true;
    RejectContact "Reject-Contact" b'j' false;
    AcceptEncoding "Accept-Encoding" 0 false;
    AcceptLanguage "Accept-Language" 0 false;
    SessionExpires "Session-Expires" b'x' true;
    ContentEncoding "Content-Encoding" b'e' false;
    ContentLanguage "Content-Language" 0 false;
    WwwAuthenticate "WWW-Authenticate" 0 false;
    ProxyAuthenticate "Proxy-Authenticate" 0 false;
    SubscriptionState "Subscription-State" 0 true;
    AuthenticationInfo "Authentication-Info" 0 true;
    ContentDisposition "Content-Disposition" 0 true;
    PAssertedIdentity "P-Asserted-Identity" 0 false;
    ProxyAuthorization "Proxy-Authorization" 0 false;
    RequestDisposition "Request-Disposition" b'd' false;
}

const LONGEST: usize = 19;

/// Slots of the hash table; a power of two, and several times the number of names.
const SLOTS: usize = 256;
const EMPTY: u8 = u8::MAX;

/// Slot at which the search for a name begins. Case makes no difference. `text` is not empty.
const fn slot(text: &[u8]) -> usize {
    let (first, middle, last) = (text[0] | 0x20, text[text.len() / 2] | 0x20, text[text.len() - 1] | 0x20);
    let mixed = text.len() * 91 + first as usize * 31 + middle as usize * 115 + last as usize * 99;
    mixed % SLOTS
}

/// Indices into `TABLE`, each at its slot or the next that was free.
const HASHED: [u8; SLOTS] = {
    let mut slots = [EMPTY; SLOTS];
    let mut at = 0;
    while at < TABLE.len() {
        let mut place = slot(TABLE[at].1.as_bytes());
        while slots[place] != EMPTY {
            place = (place + 1) % SLOTS;
        }
        slots[place] = at as u8;
        at += 1;
    }
    slots
};

/// Names by their compact form.
const COMPACT: [Name; 26] = {
    let mut names = [Name::Other; 26];
    let mut at = 0;
    while at < TABLE.len() {
        if TABLE[at].2 != 0 {
            names[(TABLE[at].2 - b'a') as usize] = TABLE[at].0;
        }
        at += 1;
    }
    names
};

impl Name {
    /// The name that `text` stands for, in any case, long or compact (RFC 3261 section 7.3.3).
    pub fn of(text: &[u8]) -> Self {
        if let [letter] = text {
            let letter = letter.to_ascii_lowercase().wrapping_sub(b'a');
            return COMPACT.get(usize::from(letter)).copied().unwrap_or(Self::Other);
        }
        if text.is_empty() || text.len() > LONGEST {
            return Self::Other;
        }
        let mut place = slot(text);
        while let Some((name, known, ..)) = TABLE.get(usize::from(HASHED[place])) {
            let known = known.as_bytes();
            if known == text || known.eq_ignore_ascii_case(text) {
                return *name;
            }
            place = (place + 1) % SLOTS;
        }
        Self::Other
    }

    /// The long form; empty for [`Name::Other`].
    pub fn as_str(self) -> &'static str {
        TABLE.get(self as usize).map_or("", |entry| entry.1)
    }

    /// The compact form, where there is one.
    pub fn compact(self) -> Option<char> {
        TABLE.get(self as usize).filter(|entry| entry.2 != 0).map(|entry| char::from(entry.2))
    }

    /// A message may hold one header field of this name, with one value (RFC 3261 section 7.3.1).
    pub fn single(self) -> bool {
        TABLE.get(self as usize).is_some_and(|entry| entry.3)
    }

    /// The list of values may be empty (RFC 3261 section 25.1).
    pub fn may_be_empty(self) -> bool {
        matches!(
            self,
            Self::Supported
                | Self::Allow
                | Self::Accept
                | Self::AcceptEncoding
                | Self::AcceptLanguage
                | Self::AllowEvents
        )
    }

    /// Every known name.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|entry| entry.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_slots_of_their_own() {
        assert_eq!(TABLE.iter().map(|entry| entry.1.len()).max(), Some(LONGEST));
        assert!(TABLE.len() < usize::from(EMPTY) && TABLE.len() * 2 < SLOTS);
        for (at, entry) in TABLE.iter().enumerate() {
            assert_eq!(usize::from(HASHED[slot(entry.1.as_bytes())]), at, "{}", entry.1);
        }
    }

    #[test]
    fn names_are_found_in_any_case() {
        for name in Name::all() {
            let text = name.as_str();
            for form in [text.to_owned(), text.to_uppercase(), text.to_lowercase()] {
                assert_eq!(Name::of(form.as_bytes()), name);
            }
            let compact = name.compact().map(|c| c.to_string());
            assert!(compact.is_none_or(
                |c| Name::of(c.as_bytes()) == name && Name::of(c.to_uppercase().as_bytes()) == name
            ));
        }
        for unknown in ["", "g", "Vi", "Vias", "1", "Content-Lengt", "X-Content-Length-and-more"] {
            assert_eq!(Name::of(unknown.as_bytes()), Name::Other, "{unknown}");
        }
    }
}
