//! Whom a message came from or goes to, and over what.

use std::net::SocketAddr;

/// What carries a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A connection.
    Tcp,
    /// A connection inside TLS.
    Tls,
    /// WebSocket messages (RFC 7118).
    Ws,
    /// The same inside TLS.
    Wss,
}

impl Transport {
    /// Its name in Via (RFC 3261 section 20.42).
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
            Self::Ws => "WS",
            Self::Wss => "WSS",
        }
    }

    /// Whether it delivers what it is given.
    pub fn reliable(self) -> bool {
        self != Self::Udp
    }

    /// Whether clients open its connections, and this server none: what goes to a client goes over the client's own.
    pub fn from_clients(self) -> bool {
        matches!(self, Self::Tls | Self::Ws | Self::Wss)
    }

    /// Its parameter in a URI.
    pub(crate) fn parameter(self) -> &'static str {
        match self {
            Self::Udp => "",
            Self::Tcp => ";transport=tcp",
            Self::Tls => ";transport=tls",
            // of both (RFC 7118 section 5.2.2)
            Self::Ws | Self::Wss => ";transport=ws",
        }
    }
}

/// Where a message came from, or goes to: a datagram's address, or a connection to or from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer {
    /// What carries it.
    pub transport: Transport,
    /// Address and port.
    pub address: SocketAddr,
}

impl Peer {
    /// One over UDP.
    pub fn udp(address: SocketAddr) -> Self {
        Self { transport: Transport::Udp, address }
    }

    /// One over TCP.
    pub fn tcp(address: SocketAddr) -> Self {
        Self { transport: Transport::Tcp, address }
    }
}

/// What was wrong with a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// Its TLS.
    Tls(String),
    /// Its WebSocket handshake, or a frame.
    WebSocket(String),
    /// Nothing: the server gave it up.
    GivenUp(Given),
}

/// Why the server gives a connection up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// There are as many as it takes.
    TooMany,
    /// The client sent no message in 64 T1, or did not get through its handshake.
    Silent,
    /// The client does not read what is sent to it.
    Unread,
}

impl Given {
    /// As counters name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TooMany => "too many",
            Self::Silent => "no message in 64 T1",
            Self::Unread => "does not read",
        }
    }
}
