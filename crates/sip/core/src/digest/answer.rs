use super::{Algorithm, Challenge, Hex, Qop};

/// The answer to a challenge: the value of an Authorization or Proxy-Authorization header field.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The challenge.
    pub challenge: &'a Challenge<'a>,
    /// User name.
    pub username: &'a [u8],
    /// [`Algorithm::ha1`] of user name, the challenge's realm and the password.
    pub ha1: &'a Hex,
    /// Method of the request.
    pub method: &'a [u8],
    /// Request-URI of the request.
    pub uri: &'a [u8],
    /// Body of the request, for `auth-int`.
    pub body: &'a [u8],
    /// Quality of protection, as [`Challenge::qop`] chooses it.
    pub qop: Option<Qop>,
    /// The client's nonce: letters and digits.
    pub cnonce: &'a [u8],
    /// How many requests were sent with this nonce, this one included.
    pub nc: u32,
}

/// Inputs of a response, besides the user's HA1 (RFC 7616 section 3.4.1).
#[derive(Debug, Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub algorithm: Algorithm,
    pub nonce: &'a [u8],
    pub nc: &'a [u8],
    pub cnonce: &'a [u8],
    pub qop: Option<Qop>,
    pub method: &'a [u8],
    pub uri: &'a [u8],
    pub body: &'a [u8],
}

impl Inputs<'_> {
    pub fn response(&self, ha1: &Hex) -> Hex {
        let hash = self.algorithm.hash;
        let session = self.algorithm.session.then(|| hash.of(&[ha1.as_bytes(), self.nonce, self.cnonce]));
        let ha1 = session.as_ref().unwrap_or(ha1).as_bytes();
        let ha2 = match self.qop {
            Some(Qop::AuthInt) => {
                let body = hash.of(&[self.body]);
                hash.of(&[self.method, self.uri, body.as_bytes()])
            }
            _ => hash.of(&[self.method, self.uri]),
        };
        match self.qop {
            None => hash.of(&[ha1, self.nonce, ha2.as_bytes()]),
            Some(qop) => {
                let qop = qop.as_str().as_bytes();
                hash.of(&[ha1, self.nonce, self.nc, self.cnonce, qop, ha2.as_bytes()])
            }
        }
    }
}

impl Answer<'_> {
    /// Parameter `response`.
    pub fn response(&self) -> Hex {
        self.hash(self.method, self.body)
    }

    /// Parameter `rspauth` of the Authentication-Info that a server with the same password sends with this body
    /// (RFC 7616 section 3.5): the response of an empty method.
    pub fn response_auth(&self, body: &[u8]) -> Hex {
        self.hash(b"", body)
    }

    fn hash(&self, method: &[u8], body: &[u8]) -> Hex {
        let inputs = Inputs {
            algorithm: self.challenge.algorithm,
            nonce: self.challenge.nonce,
            nc: &nc_digits(self.nc),
            cnonce: self.cnonce,
            qop: self.qop,
            method,
            uri: self.uri,
            body,
        };
        inputs.response(self.ha1)
    }

    /// Appends the value, from `Digest` on. Nothing is allocated where `out` has room.
    pub fn write(&self, out: &mut Vec<u8>) {
        let challenge = self.challenge;
        out.extend_from_slice(b"Digest username=\"");
        if challenge.userhash {
            out.extend_from_slice(challenge.algorithm.userhash(self.username, challenge.realm).as_bytes());
        } else {
            escaped(out, self.username);
        }
        quoted(out, "\", realm=\"", challenge.realm);
        quoted(out, "\", nonce=\"", challenge.nonce);
        quoted(out, "\", uri=\"", self.uri);
        quoted(out, "\", response=\"", self.response().as_bytes());
        quoted(out, "\", algorithm=", challenge.algorithm.as_str().as_bytes());
        if self.qop.is_some() || challenge.algorithm.session {
            quoted(out, ", cnonce=\"", self.cnonce);
            out.push(b'"');
        }
        if let Some(qop) = self.qop {
            quoted(out, ", qop=", qop.as_str().as_bytes());
            quoted(out, ", nc=", &nc_digits(self.nc));
        }
        if let Some(opaque) = challenge.opaque {
            quoted(out, ", opaque=\"", opaque);
            out.push(b'"');
        }
        if challenge.userhash {
            out.extend_from_slice(b", userhash=true");
        }
    }
}

fn quoted(out: &mut Vec<u8>, before: &str, value: &[u8]) {
    out.extend_from_slice(before.as_bytes());
    out.extend_from_slice(value);
}

fn escaped(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

fn nc_digits(nc: u32) -> [u8; 8] {
    std::array::from_fn(|at| {
        let digit = (nc >> (28 - 4 * at)) & 15;
        u8::try_from(char::from_digit(digit, 16).unwrap_or('0')).unwrap_or(b'0')
    })
}
