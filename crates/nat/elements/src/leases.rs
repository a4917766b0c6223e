//! Who a private DHCP server gave which address: a thread reads it from the server's lease file, and tells the NAT table.

use crate::bind::Bind;
use nat_core::Realm;
use nat_dhcp::{Format, LeaseEvent, Watcher};
use profile::Vlans;
use protocol::problem::Problem;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::SystemTime;

/// Bindings under way to the table; the file waits for it.
const AHEAD: usize = 1_024;
/// Longest wait for the file, s: leases end by their time, too.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The server that writes the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Server {
    /// Kea: its memfile, `kea-leases4.csv`.
    Kea,
    /// ISC's dhcpd: `dhcpd.leases`.
    Isc,
}

/// A DHCP server's lease file. It is followed through whatever the server does to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseFile {
    /// Its path, from the root on. It need not be there yet.
    pub file: String,
    /// Who writes it: `kea` or `isc`.
    pub server: Server,
    /// The VLAN that the server's clients are in, or two of them for QinQ, the service VLAN first. Default: none.
    #[serde(default, skip_serializing_if = "Vlans::is_empty")]
    pub vlan: Vlans,
}

impl LeaseFile {
    /// What is wrong with it.
    pub fn check(&self, key: &str) -> Option<Problem> {
        let what = format!("{:?} is no path from the root on", self.file);
        let fix = "Use one like /var/lib/kea/kea-leases4.csv";
        (!self.file.starts_with('/')).then(|| Problem::new(format!("{key}.file"), what, fix))
    }

    fn realm(&self) -> Realm {
        let id = |at: usize| self.vlan.ids().get(at).map_or(0, |id| u32::from(id & 0x0fff));
        id(0) << 12 | id(1)
    }
}

/// What leases say, as it comes. Dropping it ends the thread.
#[derive(Debug)]
pub struct Leases {
    told: Receiver<Bind>,
    /// Its other end wakes the thread when this one is gone.
    _alive: UnixStream,
}

impl Leases {
    /// Follow a file, of at most so many leases.
    pub fn follow(file: &LeaseFile, most: usize) -> io::Result<Self> {
        let format = match file.server {
            Server::Kea => Format::Kea,
            Server::Isc => Format::Isc,
        };
        let watcher = Watcher::new(Path::new(&file.file), format, most)?;
        let (ours, theirs) = UnixStream::pair()?;
        let (tell, told) = sync_channel(AHEAD);
        let realm = file.realm();
        let run = move || follow(watcher, realm, &tell, &theirs);
        std::thread::Builder::new().name("nd-leases".into()).spawn(run)?;
        Ok(Self { told, _alive: ours })
    }

    /// Those that somebody else tells.
    #[cfg(test)]
    pub fn of(told: Receiver<Bind>) -> Self {
        Self { told, _alive: UnixStream::pair().expect("a pair").0 }
    }

    /// The next that was told.
    pub fn next(&mut self) -> Option<Bind> {
        self.told.try_recv().ok()
    }
}

/// Read the file whenever there is something new, until nobody wants to know.
fn follow(mut watcher: Watcher, realm: Realm, tell: &SyncSender<Bind>, theirs: &UnixStream) {
    let (mut failing, mut full) = (false, false);
    loop {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut news = Vec::new();
        let read = watcher.poll(now, |event| news.push(bind(&event, realm)));
        // A full channel waits for the table; one that is gone is the end.
        if news.into_iter().any(|bind| tell.send(bind).is_err()) {
            return;
        }
        if !full && watcher.refused() > 0 {
            full = true;
            tracing::warn!("the lease file has more leases than are followed: raise limits.subscribers");
        }
        match &read {
            Ok(true) => continue,
            Ok(false) => failing = false,
            Err(why) if !failing => {
                tracing::warn!("the lease file cannot be followed: {why}; it is tried again every second");
                failing = true;
            }
            Err(_) => {}
        }
        let mut waits = [
            PollFd::new(theirs, PollFlags::IN),
            // What cannot be read is not waited for: it would be ready at once.
            PollFd::new(&watcher, if failing { PollFlags::empty() } else { PollFlags::IN }),
        ];
        if let Err(why) = poll(&mut waits, Some(&LOOK))
            && why != rustix::io::Errno::INTR
        {
            tracing::warn!("the lease file is not followed any more: {why}");
            return;
        }
        if !waits[0].revents().is_empty() {
            return;
        }
    }
}

/// What a change means for the table. Nobody is bound by a lease of no Ethernet hardware, also who was until then.
fn bind(event: &LeaseEvent, realm: Realm) -> Bind {
    let (lease, bound) = match event {
        LeaseEvent::Granted(lease) | LeaseEvent::Renewed(lease) => (lease, true),
        LeaseEvent::Ended(lease, _) => (lease, false),
    };
    Bind { inside: lease.address, realm, mac: lease.hardware.filter(|_| bound) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::net::Ipv4Addr;
    use std::time::{Duration, Instant};

    const HEADER: &str = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context";

    fn next(leases: &mut Leases) -> Bind {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(bind) = leases.next() {
                return bind;
            }
            assert!(Instant::now() < end, "nothing was told");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn leases_that_come_and_go_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kea-leases4.csv");
        let vlan = serde_json::from_str("[7, 9]").unwrap();
        let options = LeaseFile { file: file.to_str().unwrap().into(), server: Server::Kea, vlan };
        let mut leases = Leases::follow(&options, 100).unwrap();
        assert_eq!(leases.next().map(|bind| bind.inside), None, "it is not there yet");
        let line = |lifetime| format!("10.0.0.7,02:00:00:00:00:07,,{lifetime},4000000000,1,0,0,,0,\n");
        fs::write(&file, format!("{HEADER}\n{}", line(3600))).unwrap();
        let granted = next(&mut leases);
        assert_eq!(
            (granted.inside, granted.realm, granted.mac),
            (Ipv4Addr::new(10, 0, 0, 7), 7 << 12 | 9, Some([2, 0, 0, 0, 0, 7]))
        );
        fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(line(0).as_bytes()).unwrap();
        let ended = next(&mut leases);
        assert_eq!((ended.inside, ended.mac), (granted.inside, None));
        // By a renewal without an Ethernet address nobody is bound any more, either.
        let append = |line: &str| {
            fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(line.as_bytes()).unwrap();
        };
        append("10.0.0.8,02:00:00:00:00:08,01:02:03,3600,4000000000,1,0,0,,0,\n");
        assert_eq!(next(&mut leases).mac, Some([2, 0, 0, 0, 0, 8]));
        append("10.0.0.8,,01:02:03,3600,4000000001,1,0,0,,0,\n");
        let renewed = next(&mut leases);
        assert_eq!((renewed.inside, renewed.mac), (Ipv4Addr::new(10, 0, 0, 8), None));
    }

    #[test]
    fn only_a_path_from_the_root_on_is_one() {
        let file = |file: &str| LeaseFile { file: file.into(), server: Server::Isc, vlan: Vlans::default() };
        assert!(file("/var/lib/dhcp/dhcpd.leases").check("leases").is_none());
        assert_eq!(file("dhcpd.leases").check("leases").unwrap().key, "leases.file");
        assert_eq!(file("/x").realm(), 0);
    }
}
