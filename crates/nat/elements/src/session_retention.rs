//! What a worker knows of the end of its NAT.

use crate::log::Log;
use crate::shared::Shared;
use crate::state::Keeper;
use nat_core::{Nat, Ownership};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// When a NAT stops, all of its workers' logs take what ends for so long.
const ENDING: Duration = Duration::from_secs(2);

/// What becomes of sessions when their NAT stops.
#[derive(Debug, Clone)]
pub struct SessionRetention {
    pub(crate) keeper: Option<Arc<Keeper>>,
    ending: Arc<OnceLock<Instant>>,
    /// Who owns what, and which of them this is.
    pub(crate) ownership: Arc<OnceLock<(u16, Ownership)>>,
    pub(crate) replica: usize,
}

impl SessionRetention {
    /// As worker `replica` of this NAT has it.
    pub fn of(shared: &Shared, replica: usize) -> Self {
        let (ending, ownership) = (Arc::clone(&shared.ending), Arc::clone(&shared.ownership));
        Self { keeper: shared.keeper.clone(), ending, ownership, replica }
    }

    /// A worker has stopped: say the rest to its log. Where its state does not go on, all that it has ends, and so does what others
    /// gave before; where it does, it is held until those that come have given theirs.
    pub(crate) fn say_rest(&self, nat: &mut Nat, mut log: Log, goes_on: bool, now: u64) {
        let mut ended = Vec::new();
        if !goes_on {
            log.end(nat, now, self.until());
            ended.extend(self.keeper.as_ref().map(|keeper| keeper.not_kept()).into_iter().flatten());
        } else {
            while log.drain(nat, now) {}
            log.end_forwards(nat, now, self.until());
            if let Some(keeper) = &self.keeper
                && let Ok(nat) = nat.take()
            {
                ended.extend(keeper.hold(nat, log));
            }
        }
        for (nat, log) in &mut ended {
            log.end(nat, now, self.until());
            log.close();
        }
    }

    /// Until when what ends may wait for room in the log.
    fn until(&self) -> Instant {
        *self.ending.get_or_init(|| Instant::now() + ENDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogOptions;
    use crate::state::Header;
    use ::element::kind::Endings;
    use nat_core::testing::{NOW, REMOTE, config, inside, send};
    use std::net::UdpSocket;

    /// Two workers stop: the first gives its state, the second cannot.
    #[test]
    fn where_one_cannot_keep_its_sessions_those_of_all_end_in_the_log() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let to = collector.local_addr().unwrap().to_string();
        let options: LogOptions =
            serde_json::from_value(serde_json::json!({"syslog": to, "sessions": true})).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        std::fs::create_dir(&below).unwrap();
        let header = Header { workers: 2, written_ms: 0, seed: [1; 32], log: None };
        let keeper = Arc::new(Keeper::new(&below.join("cgn.state"), header, Endings::default()));
        for replica in 0..2 {
            let kept = SessionRetention {
                keeper: Some(Arc::clone(&keeper)),
                ending: Arc::default(),
                ownership: Arc::default(),
                replica,
            };
            let mut config = config();
            options.configure(&mut config);
            let mut nat = Nat::new(config).unwrap();
            send(&mut nat, inside(1 + replica as u8, 5000), REMOTE);
            let log = Log::start(&options, replica as u32, &Endings::default()).unwrap();
            if replica == 1 {
                std::fs::remove_dir_all(&below).unwrap();
            }
            let goes_on = keeper.give(&nat, NOW, |_| None);
            kept.say_rest(&mut nat, log, goes_on, NOW);
        }
        let mut ended = [false; 2];
        while ended != [true; 2] {
            let mut line = [0; 2048];
            let len = collector.recv(&mut line).expect("more lines");
            let line = String::from_utf8_lossy(&line[..len]).into_owned();
            for (ended, address) in ended.iter_mut().zip(["10.0.0.1", "10.0.0.2"]) {
                *ended |= line.contains("session-delete") && line.contains(address);
            }
        }
    }
}
