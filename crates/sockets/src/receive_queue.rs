//! The receive queue of a datagram socket: room for what may come while nobody reads, and what it had no room for.
//!
//! Linux drops what a full queue cannot take, and the sender never learns of it. To somebody who measures, that looks like
//! loss on the way: it is our own, and is counted as such.

use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use nix::{getsockopt_impl, sockopt_impl};
use std::os::fd::AsFd;

/// Words of SO_MEMINFO (linux/sock_diag.h), and the one that counts what was dropped.
const WORDS: usize = 9;
const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;

sockopt_impl!(
    /// What a socket's memory is used for, and what it dropped.
    MemInfo,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_MEMINFO,
    [u32; WORDS]
);

/// Words of TCP_INFO (linux/tcp.h) up to the one that counts what the socket has taken and not sent for the first time yet.
const TCP_WORDS: usize = 37;
const NOT_SENT: usize = 36;

sockopt_impl!(
    /// How a TCP connection does.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    [u32; TCP_WORDS]
);

/// How many bytes a TCP socket has taken that have not left this host.
pub fn not_sent(fd: &impl AsFd) -> u64 {
    getsockopt(fd, TcpInfo).map_or(0, |words| words[NOT_SENT].into())
}

/// Give the queue so much room: as much as this user may have. Linux takes twice as much for its own use.
pub fn enlarge(fd: &impl AsFd, room: usize) {
    let _what_is_allowed = setsockopt(fd, sockopt::RcvBufForce, &room)
        .or_else(|_| setsockopt(fd, sockopt::RcvBuf, &room.min(i32::MAX as usize)));
}

/// How many datagrams the socket has dropped since it was made: those that its queue had no room for, and those whose
/// checksum was wrong. The count wraps.
pub fn dropped(fd: &impl AsFd) -> u32 {
    getsockopt(fd, MemInfo).map_or(0, |words| words[DROPS])
}

/// Tells datagrams for which there was no room from those that arrived broken: a socket counts both together, and the
/// namespace apart.
#[derive(Debug)]
pub struct Overflows {
    /// Told so far of what the namespace counted.
    told: u64,
    began: u64,
}

impl Overflows {
    /// From now on.
    pub fn new() -> Self {
        Self { told: 0, began: overflowed() }
    }

    /// A UDP socket has dropped `dropped` more: for how many of them there was no room.
    pub fn of(&mut self, dropped: u64) -> u64 {
        if dropped == 0 {
            return 0;
        }
        let more = overflowed().saturating_sub(self.began).saturating_sub(self.told);
        let own = dropped.min(more);
        self.told += own;
        own
    }
}

impl Default for Overflows {
    fn default() -> Self {
        Self::new()
    }
}

/// UDP datagrams that found no room in the queues of this network namespace, so far.
fn overflowed() -> u64 {
    let read =
        |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    v4(&read("snmp")) + v6(&read("snmp6"))
}

/// Of `snmp`: a line of names, and one of values.
fn v4(text: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let of = |(name, value): (&str, &str)| if is_full(name) { value.parse().unwrap_or(0) } else { 0 };
    names.split_whitespace().zip(values.split_whitespace()).map(of).sum()
}

/// Of `snmp6`: a name and a value in each line.
fn v6(text: &str) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.strip_prefix("Udp6")?.split_once(char::is_whitespace)?;
        is_full(name).then(|| value.trim().parse::<u64>().ok())?
    };
    text.lines().filter_map(value).sum()
}

/// The socket's own room, or that of all UDP.
fn is_full(name: &str) -> bool {
    matches!(name, "RcvbufErrors" | "MemErrors")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// A socket that nobody reads, with as little room as there can be, and one that sends to it.
    fn pair(address: &str) -> (UdpSocket, UdpSocket) {
        let [reader, sender] = [(); 2].map(|()| UdpSocket::bind(format!("{address}:0")).expect("bind"));
        setsockopt(&reader, sockopt::RcvBuf, &0).expect("less room");
        sender.connect(reader.local_addr().expect("bound")).expect("connect");
        reader.set_nonblocking(true).expect("non-blocking");
        (reader, sender)
    }

    fn queued(reader: &UdpSocket) -> u32 {
        (0..).take_while(|_| reader.recv(&mut [0; 100]).is_ok()).count() as u32
    }

    #[test]
    fn what_a_full_queue_drops_is_counted_to_the_datagram() {
        for address in ["127.0.0.1", "[::1]"] {
            let mut overflows = Overflows::new();
            let (reader, sender) = pair(address);
            const SENT: u32 = 200;
            (0..SENT).for_each(|_| assert_eq!(sender.send(&[7; 100]).ok(), Some(100)));
            let full = dropped(&reader);
            let read = queued(&reader);
            assert!(full > 0 && read > 0, "{read} read, {full} dropped");
            assert_eq!(read + full, SENT, "{address}");
            assert_eq!(overflows.of(full.into()), u64::from(full));
            assert_eq!(overflows.of(0), 0);
        }
    }

    #[test]
    fn with_room_nothing_is_dropped() {
        let (reader, sender) = pair("127.0.0.1");
        enlarge(&reader, run::receive_room::LEAST);
        (0..100).for_each(|_| assert_eq!(sender.send(&[7; 100]).ok(), Some(100)));
        assert_eq!((dropped(&reader), queued(&reader)), (0, 100));
    }

    #[test]
    fn only_full_queues_count() {
        let snmp = "Icmp: InMsgs\nIcmp: 5\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors \
                    InCsumErrors IgnoredMulti MemErrors\nUdp: 100 3 60 9 40 7 13 1 2\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(v4(snmp), 42);
        let snmp6 = "Ip6InReceives \t8\nUdp6InErrors   \t3\nUdp6RcvbufErrors  \t4\nUdp6InCsumErrors\t5\nUdp6MemErrors\t1\n";
        assert_eq!(v6(snmp6), 5);
        assert_eq!((v4(""), v6("")), (0, 0));
        let mut none = Overflows { told: 0, began: u64::MAX };
        assert_eq!(none.of(5), 0, "a wrong checksum is nobody's full queue");
    }
}
