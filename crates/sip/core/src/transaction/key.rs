use crate::message::header::MAGIC_COOKIE;
use crate::message::{CSeq, Scanned, Start, TopVia};

/// Which client transaction a response is for (RFC 3261 section 17.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientKey<'a> {
    /// Branch of the topmost Via.
    pub branch: &'a [u8],
    /// Method of CSeq.
    pub method: &'a [u8],
}

impl<'a> ClientKey<'a> {
    /// The key of a response; `None` for a request, and where the Via has no branch.
    pub fn of(message: &Scanned<'a>) -> Option<Self> {
        message.code()?;
        Some(Self { branch: message.via.branch?, method: message.cseq.method })
    }
}

/// Which server transaction a request is for (RFC 3261 section 17.2.3). An ACK has the key of its INVITE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServerKey<'a> {
    /// The branch has the cookie.
    Branch {
        /// Branch of the topmost Via.
        branch: &'a [u8],
        /// Host of its sent-by.
        host: &'a [u8],
        /// Port of its sent-by.
        port: Option<u16>,
        /// Method.
        method: &'a [u8],
    },
    /// A request of RFC 2543. To is not among it: the tag of an ACK is that of the response.
    Legacy {
        /// Request-URI.
        uri: &'a [u8],
        /// Call-ID.
        call_id: &'a [u8],
        /// Sequence number of CSeq.
        number: u32,
        /// Method.
        method: &'a [u8],
        /// Parameter `tag` of From.
        from_tag: Option<&'a [u8]>,
        /// Branch, host and port of the topmost Via.
        via: (Option<&'a [u8]>, &'a [u8], Option<u16>),
    },
}

impl<'a> ServerKey<'a> {
    /// The key of a request; `None` for a response.
    pub fn of(message: &Scanned<'a>) -> Option<Self> {
        let Start::Request { method, uri } = message.start else { return None };
        let method: &[u8] = if method == b"ACK" { b"INVITE" } else { method };
        let TopVia { branch, host, port, .. } = message.via;
        let cookie = MAGIC_COOKIE.as_bytes();
        let unique = branch.filter(|branch| {
            branch.len() > cookie.len() && branch[..cookie.len()].eq_ignore_ascii_case(cookie)
        });
        let CSeq { number, .. } = message.cseq;
        Some(match unique {
            Some(branch) => Self::Branch { branch, host, port, method },
            None => Self::Legacy {
                uri,
                call_id: message.call_id,
                number,
                method,
                from_tag: message.from_tag,
                via: (branch, host, port),
            },
        })
    }
}
