//! Where the headers are that a port makes checksums of.

/// UDP or TCP in IP, in every frame of a program at the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// Where the IP header begins.
    pub ip: usize,
    /// Where that of UDP or TCP does.
    pub l4: usize,
    /// Whether it is IPv6.
    pub v6: bool,
    /// Whether it is TCP, else UDP.
    pub tcp: bool,
}
