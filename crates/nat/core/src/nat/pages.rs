//! What there is, page by page: for those who ask while packets pass, and who may hold them up no longer than a burst does.

use super::Nat;
use crate::session::Session;
use crate::subscriber::Subscriber;
use std::net::Ipv4Addr;

impl Nat {
    /// The sessions in `lines` lines of their table from number `from` on, with their numbers, as [`Nat::sessions`] gives them; and the line
    /// to go on from. `None`: there are no more. A session that begins meanwhile may take a line that was passed already.
    pub fn sessions_from(
        &self,
        from: u32,
        lines: u32,
    ) -> (impl Iterator<Item = (u32, &Session)>, Option<u32>) {
        self.sessions.alive_from(from, lines)
    }

    /// The subscribers in `lines` lines of their table from number `from` on, with their numbers; and the line to go on from.
    /// `None`: there are no more.
    pub fn subscribers_from(
        &self,
        from: u32,
        lines: u32,
    ) -> (impl Iterator<Item = (u32, &Subscriber)>, Option<u32>) {
        self.subscribers.iter_from(from, lines)
    }

    /// How many subscribers there are.
    pub fn subscriber_count(&self) -> usize {
        self.subscribers.len()
    }

    /// The port blocks of a subscriber: the address outside, which is the same for all of them, and first and last port of each.
    pub fn blocks_of(&self, subscriber: &Subscriber) -> impl Iterator<Item = (Ipv4Addr, (u16, u16))> {
        subscriber.blocks().iter().map(move |block| self.pool.ports(subscriber.address, *block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, PoolAddress, SECOND};
    use crate::key::Endpoint;
    use crate::verdict::{Frame, Side, Verdict};
    use packet::frame::{Flow, Program};
    use packet::signature::Signature;
    use std::net::SocketAddr;

    const HOST: u32 = 0x0a00_0001;

    fn nat() -> Nat {
        let pool = vec![PoolAddress::all_ports(Ipv4Addr::new(203, 0, 113, 1))];
        Nat::new(Config { pool, sessions: 64, subscribers: 64, ..Config::default() }).unwrap()
    }

    fn open(nat: &mut Nat, host: u32, port: u16, now: u64) {
        let flow = Flow {
            source_mac: [2; 6],
            destination_mac: [4; 6],
            source: SocketAddr::from((Ipv4Addr::from_bits(host), port)),
            destination: SocketAddr::from(([198, 51, 100, 9], 53)),
        };
        let (mut bytes, mark) = (vec![0; 80], Signature { stream: 1, sequence: 2, sent_ns: 3 });
        let _written = Program::udp(&flow, 80).unwrap().write(&mut bytes, 0, &mark);
        let mut frames = [Frame::new(&mut bytes)];
        nat.process(Side::Inside, &mut frames, now);
        assert!(matches!(frames[0].verdict, Verdict::Forward(_)), "{:?}", frames[0].verdict);
    }

    /// All sessions, so many lines at a time: their ports, and how many pages that took.
    fn ports(nat: &Nat, lines: u32) -> (Vec<u16>, usize) {
        let (mut ports, mut pages, mut from) = (Vec::new(), 0, Some(0));
        while let Some(line) = from {
            let (page, next) = nat.sessions_from(line, lines);
            let before = ports.len();
            ports.extend(page.map(|(_, session)| session.inside().port));
            assert!(ports.len() - before <= lines as usize);
            (pages, from) = (pages + 1, next);
        }
        (ports, pages)
    }

    #[test]
    fn pages_have_every_session_once() {
        let mut nat = nat();
        assert_eq!(ports(&nat, 4), (vec![], 1));
        for port in 1..=10 {
            open(&mut nat, HOST, port, SECOND);
        }
        let all: Vec<u16> = (1..=10).collect();
        for (lines, pages) in [(1, 10), (4, 3), (5, 2), (10, 1), (u32::MAX, 1)] {
            assert_eq!(ports(&nat, lines), (all.clone(), pages), "{lines} lines at a time");
        }
        // Some end: their lines are passed over, and a page may be empty though there are more.
        nat.end_hop(0);
        while nat.advance(2 * SECOND, 100) {}
        assert_eq!(nat.session_count(), 0);
        open(&mut nat, HOST, 11, 2 * SECOND);
        let (mut first, next) = nat.sessions_from(0, 4);
        assert_eq!((first.next().map(|(number, _)| number), next), (None, Some(4)));
        assert_eq!(ports(&nat, 4), (vec![11], 3));
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        let mut nat = nat();
        open(&mut nat, HOST, 1, SECOND);
        for from in [1, 2, 64, u32::MAX] {
            let ((sessions, next), (subscribers, last)) =
                (nat.sessions_from(from, 10), nat.subscribers_from(from, 10));
            assert_eq!((sessions.count(), next, subscribers.count(), last), (0, None, 0, None), "{from}");
        }
        // No lines asked for is no answer, and no end either.
        let (none, next) = nat.sessions_from(0, 0);
        assert_eq!((none.count(), next), (0, Some(0)));
    }

    #[test]
    fn subscribers_have_blocks_of_one_address() {
        let mut nat = nat();
        for host in 0..3 {
            open(&mut nat, HOST + host, 7, SECOND);
        }
        let (page, next) = nat.subscribers_from(1, 1);
        let (number, line) = page.last().unwrap();
        assert_eq!(
            (number, line.inside(), line.sessions(), next),
            (1, Ipv4Addr::new(10, 0, 0, 2), 1, Some(2))
        );
        let blocks: Vec<_> = nat.blocks_of(line).collect();
        let [(address, (first, last))] = blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((address, last - first), (Ipv4Addr::new(203, 0, 113, 1), 511));
        let outside = nat.sessions().find(|(_, session)| session.inside().address == HOST + 1).unwrap().1;
        assert!((first..=last).contains(&outside.outside().port));
        assert_eq!((nat.subscriber_count(), nat.pool().blocks()), (3, (126, 123)));
    }

    #[test]
    fn a_session_knows_how_long_it_is_idle() {
        let mut nat = nat();
        open(&mut nat, HOST, 7, 100 * SECOND);
        let session = *nat.sessions().next().unwrap().1;
        assert_eq!(session.inside(), Endpoint::new(HOST, 7));
        let idle = session.idle(107 * SECOND);
        assert!(idle.abs_diff(7 * SECOND) < 3_000_000, "{idle}");
        // The other worker's clock was read a little earlier than the packet's.
        assert_eq!((session.idle(100 * SECOND), session.idle(100 * SECOND - 5_000_000)), (0, 0));
        assert_eq!(session.state().name(), "open");
    }
}
