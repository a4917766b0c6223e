//! Why a connection ended, or datagrams did not get through, and whose fault it is.

use protocol::cause::{Cause, Detail};
use protocol::meter::Failure;
use rustix::io::Errno;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

/// What a transport calls the wait for a connection.
pub const CONNECT: &str = "connect";

/// Why a connection ended, or why datagrams did not get through.
#[derive(Debug, Clone)]
pub struct ConnError {
    /// The kind of failure that it counts as.
    pub why: Failure,
    /// What it was exactly.
    pub detail: Detail,
    /// Whether the socket is of no use any more.
    pub gone: bool,
    /// If not: how many datagrams it is about.
    pub times: u64,
    /// Whether it showed while sending: what the peer said before may still be unread.
    pub sending: bool,
    /// Whether it ended without saying so, as TLS without close_notify does: what came may not be all.
    pub truncated: bool,
    what: Cow<'static, str>,
    errno: Option<Errno>,
}

impl ConnError {
    /// A connection that is gone.
    pub fn new(why: impl Into<Cause>, what: impl Into<Cow<'static, str>>) -> Self {
        let Cause { kind: why, detail } = why.into();
        Self {
            why,
            detail,
            gone: true,
            times: 1,
            sending: false,
            truncated: false,
            what: what.into(),
            errno: None,
        }
    }

    /// One that the other side has closed; whether all that it sent is here.
    pub fn closed(what: &'static str, complete: bool) -> Self {
        Self { truncated: !complete, ..Self::new(Failure::Closed, what) }
    }

    /// One that an error of the system ended.
    pub fn errno(e: Errno, doing: impl Into<Cow<'static, str>>) -> Self {
        let why = match e {
            Errno::CONNREFUSED => Failure::Refused,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Failure::Reset,
            Errno::TIMEDOUT => Failure::Timeout,
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::HOSTDOWN | Errno::NONET => {
                Failure::Unreachable
            }
            _ => Failure::Local,
        };
        let detail = match e {
            Errno::ADDRNOTAVAIL => Detail::Named("out of local ports"),
            Errno::MFILE | Errno::NFILE => Detail::Named("out of file descriptors"),
            Errno::NOBUFS | Errno::NOMEM => Detail::Named("out of memory for sockets"),
            Errno::ACCESS | Errno::PERM => Detail::Named("not permitted"),
            Errno::NETUNREACH => Detail::Named("network unreachable"),
            Errno::HOSTUNREACH => Detail::Named("host unreachable"),
            _ => Detail::None,
        };
        Self { errno: Some(e), ..Self::new(Cause { kind: why, detail }, doing) }
    }

    /// The kind of failure, and what it was exactly.
    pub fn cause(&self) -> Cause {
        Cause { kind: self.why, detail: self.detail }
    }

    /// The same, of a connection to `address`.
    pub fn to(self, address: SocketAddr) -> Self {
        if self.what != CONNECT {
            return self;
        }
        Self { what: format!("{CONNECT} to {address}").into(), ..self }
    }

    /// The same, of a connection that so many devices share.
    pub fn shared_by(self, devices: usize) -> Self {
        Self { what: format!("{}, on a connection that {devices} devices share", self.what).into(), ..self }
    }

    /// The same, of several addresses, and what was wrong with each.
    pub fn of_all(self, what: String) -> Self {
        Self { what: what.into(), errno: None, ..self }
    }

    /// What was wrong, without what was being done.
    pub fn description(&self) -> String {
        match self.errno {
            Some(e) => std::io::Error::from(e).to_string(),
            None => self.what.to_string(),
        }
    }

    /// Whether the path or its end refused what was sent.
    pub fn is_by_path(&self) -> bool {
        matches!(self.why, Failure::Refused | Failure::Unreachable)
    }

    /// Whether it is the same mishap again.
    pub fn is_like(&self, other: &Self) -> bool {
        (self.errno, self.why) == (other.errno, other.why)
    }

    /// It showed while sending.
    pub fn sending(self) -> Self {
        Self { sending: true, ..self }
    }

    /// It is about so many datagrams, and the socket is as it was.
    pub fn datagrams(self, times: u64) -> Self {
        Self { gone: false, times, ..self }
    }

    /// An error of connect: a route of the kinds `blackhole` and `prohibit` leads nowhere, whoever asks.
    pub fn route(e: Errno, doing: impl Into<Cow<'static, str>>) -> Self {
        match e {
            Errno::INVAL | Errno::ACCESS => {
                Self::new(Failure::Unreachable, doing.into() + ": no route to host")
            }
            _ => Self::errno(e, doing),
        }
    }

    /// An error that the network has sent us about a packet: what a firewall or a router says is no fault of ours
    /// (the kernel makes these of ICMP codes, see icmp_err_convert).
    pub fn remote(e: Errno, doing: &'static str) -> Self {
        let broken = Self::errno(e, doing);
        match e {
            Errno::ACCESS | Errno::NOPROTOOPT | Errno::OPNOTSUPP | Errno::PROTO => {
                Self { why: Failure::Unreachable, detail: Detail::Named("prohibited by a filter"), ..broken }
            }
            _ => broken,
        }
    }
}

impl fmt::Display for ConnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        let Some(e) = self.errno else { return Ok(()) };
        let hint = match e {
            // what a router says of a packet is nothing that the user of this host can lift
            _ if self.why != Failure::Local => "",
            Errno::ADDRNOTAVAIL => {
                ": out of local ports, or the source address is not this host's; add source addresses"
            }
            Errno::MFILE | Errno::NFILE => ": out of file descriptors; raise the limit (ulimit -n)",
            Errno::ACCESS | Errno::PERM => {
                ": not permitted; for ping set sysctl net.ipv4.ping_group_range=\"0 2147483647\""
            }
            _ => "",
        };
        write!(f, ": {}{hint}", std::io::Error::from(e))
    }
}
