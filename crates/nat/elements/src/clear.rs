//! Sessions that an operator ends: a bounded number in a request, and no more than the log has room for.

use crate::control::{LINES, SessionFilter};
use crate::log::Log;
use engine::Request;
use nat_core::{ClearBounds, Nat};

/// Sessions that one request ends, at most: some 20 µs.
const MOST: usize = 256;
/// Records that a session makes when it ends, at most: its own, and that of a port block.
const RECORDS: usize = 2;

/// End sessions.
#[derive(Debug, Clone, Copy)]
pub struct Clear {
    /// The line of the table to begin at: 0, or what the reply before said.
    pub from: u32,
    /// Which.
    pub filter: SessionFilter,
    /// Also mappings that were asked for, and sessions that were asked to live on (RFC 6887).
    pub asked: bool,
    /// Even if the log has no room: what it has none for is counted.
    pub unlogged: bool,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearProgress {
    /// Sessions that were ended.
    pub ended: usize,
    /// The line to go on from. `None`: that was all. Where it began, if the log has no room now.
    pub next: Option<u32>,
}

/// The other NAT of a pair translates, and has the sessions: nothing was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standby;

impl Request for Clear {
    type Reply = Result<ClearProgress, Standby>;
}

/// End some sessions, and hand the records over; if this NAT translates. A standby would be told of them again, and its log would have
/// ends of sessions that go on.
pub fn clear(
    nat: &mut Nat,
    mut log: Option<&mut Log>,
    asked: &Clear,
    is_active: bool,
    now: u64,
) -> Result<ClearProgress, Standby> {
    if !is_active {
        return Err(Standby);
    }
    // What waits for the log comes first.
    let room = match &mut log {
        Some(log) => {
            let more_waits = log.drain(nat, now);
            let room =
                if more_waits { 0 } else { usize::try_from(log.room()).unwrap_or(usize::MAX) / RECORDS };
            if room == 0 && asked.unlogged { MOST } else { room }
        }
        None => MOST,
    };
    let bounds = ClearBounds { lines: LINES, sessions: room.min(MOST), asked: asked.asked };
    let (ended, next) = nat.clear_from(asked.from, bounds, |session| asked.filter.matches(session), now);
    if let Some(log) = log
        && ended > 0
    {
        while log.drain(nat, now) {}
    }
    Ok(ClearProgress { ended, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOptions;
    use ::element::kind::Endings;
    use nat_core::testing::{NOW, REMOTE, config, inside, nat, send};
    use rustix::net::sockopt;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
    use std::time::{Duration, Instant};

    fn clears(nat: &mut Nat, filter: SessionFilter) -> usize {
        let (mut from, mut all) = (Some(0), 0);
        while let Some(line) = from {
            let asked = Clear { from: line, filter, asked: false, unlogged: false };
            let ClearProgress { ended, next } = clear(nat, None, &asked, true, NOW).unwrap();
            assert!(ended <= MOST);
            (from, all) = (next, all + ended);
        }
        all
    }

    #[test]
    fn a_filter_says_who_is_meant() {
        let mut nat = nat();
        let other = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 10), 80);
        for port in 1..=600 {
            send(&mut nat, inside(1, port), REMOTE);
            send(&mut nat, inside(2, port), other);
        }
        let none = SessionFilter::default();
        let (remote, remote_port) = (Some(*other.ip()), Some(other.port()));
        for (filter, count) in [
            (SessionFilter { protocol: Some(6), ..none }, 0),
            (SessionFilter { realm: Some(7 << 12), ..none }, 0),
            (SessionFilter { remote, remote_port: Some(81), ..none }, 0),
            (SessionFilter { subscriber: Some(*inside(1, 1).ip()), remote, ..none }, 0),
            (SessionFilter { remote, remote_port, realm: Some(0), ..none }, 600),
            (SessionFilter { protocol: Some(17), ..none }, 600),
        ] {
            assert_eq!(clears(&mut nat, filter), count, "{filter:?}");
        }
        assert_eq!(nat.session_count(), 0);
    }

    #[test]
    fn a_standby_ends_nothing_and_logs_nothing() {
        let mut nat = nat();
        send(&mut nat, inside(1, 5000), REMOTE);
        while nat.pop_event().is_some() {}
        let asked = Clear { from: 0, filter: SessionFilter::default(), asked: true, unlogged: true };
        assert_eq!(clear(&mut nat, None, &asked, false, NOW), Err(Standby));
        assert_eq!((nat.session_count(), nat.pop_event().is_none()), (1, true));
    }

    /// A collector that is there and takes nothing.
    #[test]
    fn no_more_ends_than_the_log_has_room_for_unless_that_is_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a socket");
        sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a small buffer");
        let to = format!("tcp://{}", listener.local_addr().expect("its address"));
        let options =
            serde_json::json!({"syslog": to, "sessions": true, "queue": 64, "host": "h".repeat(255)});
        let options: LogOptions = serde_json::from_value(options).expect("options");
        let mut config = config();
        options.configure(&mut config);
        let mut log = Log::start(&options, 0, &Endings::default()).expect("a log");
        let mut nat = Nat::new(config).expect("a NAT");
        for subscriber in 1..=8 {
            for port in 1..=1000 {
                send(&mut nat, inside(subscriber, port), REMOTE);
            }
        }
        while nat.pop_event().is_some() {}
        let asked = Clear { from: 0, filter: SessionFilter::default(), asked: false, unlogged: false };
        let mut clear = |from, unlogged| {
            let asked = Clear { from, unlogged, ..asked };
            (clear(&mut nat, Some(&mut log), &asked, true, NOW).unwrap(), log.lost())
        };
        let first = clear(0, false).0;
        assert!((1..=32).contains(&first.ended), "a queue of 64 records: {first:?}");
        // Until nothing moves.
        let mut last = first;
        while last.ended > 0 {
            let (done, lost) = clear(last.next.expect("the buffers have room for all"), false);
            assert_eq!(lost, 0);
            last = done;
        }
        // What it has room for meanwhile is not lost.
        while last.ended != MOST {
            last = clear(last.next.expect("the buffers have room for all"), true).0;
            assert!(last.ended <= 32 || last.ended == MOST, "{last:?}");
        }
        let until = Instant::now() + Duration::from_secs(60);
        while log.lost() == 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!((1..=(MOST * RECORDS) as u64).contains(&log.lost()), "{}", log.lost());
    }
}
