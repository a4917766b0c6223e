#![allow(clippy::unwrap_used)]

use super::*;
use crate::lease::LeaseEnd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::{self, OpenOptions};
use std::io::Write;
use tempfile::TempDir;

const HEADER: &str = "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context\n";

fn kea(last: u8, expires: u64) -> String {
    format!("192.0.2.{last},02:00:00:00:00:{last:02x},,100,{expires},1,0,0,,0,\n")
}

fn isc(last: u8, expires: u64) -> String {
    format!(
        "lease 192.0.2.{last} {{\n  ends epoch {expires};\n  binding state active;\n  hardware ethernet 02:00:00:00:00:{last:02x};\n}}\n"
    )
}

/// An event as `+1 =2 -3`: granted, renewed, ended.
fn sign(event: &LeaseEvent) -> String {
    let (sign, lease) = match event {
        LeaseEvent::Granted(lease) => ('+', lease),
        LeaseEvent::Renewed(lease) => ('=', lease),
        LeaseEvent::Ended(lease, _) => ('-', lease),
    };
    format!("{sign}{}", lease.address.octets()[3])
}

struct Rig {
    folder: TempDir,
    watcher: Watcher,
}

impl Rig {
    fn new(name: &str, format: Format) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let watcher = Watcher::new(&folder.path().join(name), format, 100).unwrap();
        Self { folder, watcher }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn append(&self, name: &str, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(self.path(name)).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.path(from), self.path(to)).unwrap();
    }

    /// What is told by this time.
    fn told(&mut self, now: u64) -> String {
        let mut told = Vec::new();
        while self.watcher.poll(now, |event| told.push(sign(&event))).unwrap() {}
        told.sort();
        told.join(" ")
    }

    /// Whether an event loop would be woken.
    fn woken(&self) -> bool {
        let mut fds = [PollFd::new(&self.watcher, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() == 1
    }
}

#[test]
fn a_file_that_grows() {
    let mut rig = Rig::new("leases", Format::Kea);
    assert_eq!(rig.told(0), "");
    rig.append("leases", HEADER);
    rig.append("leases", &kea(1, 1000));
    assert!(rig.woken());
    assert_eq!(rig.told(0), "+1");
    assert!(!rig.woken());
    let (head, rest) = (kea(2, 1000)[..30].to_string(), kea(2, 1000)[30..].to_string());
    rig.append("leases", &head);
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    rig.append("leases", &rest);
    rig.append("leases", &kea(1, 1100));
    assert_eq!(rig.told(0), "+2 =1");
    assert_eq!(rig.told(999), "");
    assert_eq!(rig.watcher.table().next_end(), Some(1000));
    assert_eq!(rig.told(1000), "-2");
    assert_eq!(rig.watcher.faults().count(), 0);
}

#[test]
fn a_renewal_that_is_not_read_yet_keeps_a_lease_from_ending() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &kea(1, 1000));
    assert_eq!(rig.told(0), "+1");
    rig.append("leases", &kea(1, 2000));
    assert_eq!(rig.told(1500), "=1");
}

#[test]
fn the_clean_up_of_kea_at_each_of_its_steps() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &format!("{HEADER}{}{}", kea(1, 1000), kea(2, 1000)));
    assert_eq!(rig.told(0), "+1 +2");
    // Written after we looked, and before the server renamed the file.
    rig.append("leases", &kea(3, 1000));
    rig.rename("leases", "leases.1");
    assert_eq!(rig.told(0), "+3");
    rig.append("leases", HEADER);
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    rig.append("leases", &kea(4, 1000));
    rig.append("leases.output", &format!("{HEADER}{}{}{}", kea(1, 1000), kea(2, 1000), kea(3, 1000)));
    assert_eq!(rig.told(0), "+4");
    rig.rename("leases.output", "leases.completed");
    assert_eq!(rig.told(0), "");
    fs::remove_file(rig.path("leases.1")).unwrap();
    rig.rename("leases.completed", "leases.2");
    rig.append("leases", &kea(1, 1100));
    assert_eq!(rig.told(0), "=1");
    assert_eq!(rig.watcher.faults().count(), 0);
}

#[test]
fn who_starts_late_reads_all_files_of_kea() {
    for (files, told) in [
        (vec![("leases.2", 1), ("leases.1", 2), ("leases", 3)], "+1 +2 +3"),
        (vec![("leases.2", 1), ("leases.1", 2), ("leases.completed", 4), ("leases", 3)], "+3 +4"),
        (vec![("leases.2", 1)], "+1"),
    ] {
        let mut rig = Rig::new("leases", Format::Kea);
        files.iter().for_each(|(name, last)| rig.append(name, &format!("{HEADER}{}", kea(*last, 1000))));
        assert_eq!(rig.told(0), told);
    }
}

#[test]
fn two_rotations_between_two_looks_lose_nothing_and_repeat_nothing() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &format!("{HEADER}{}", kea(1, 1000)));
    assert_eq!(rig.told(0), "+1");
    rig.append("leases", &kea(1, 1200));
    rig.rename("leases", "leases.2");
    rig.append("leases", &format!("{HEADER}{}", kea(2, 1000)));
    rig.rename("leases", "leases.1");
    rig.append("leases", &format!("{HEADER}{}", kea(3, 1000)));
    assert_eq!(rig.told(0), "+2 +3 =1");
    assert_eq!(rig.watcher.table().len(), 3);
}

#[test]
fn truncation() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &format!("{HEADER}{}{}", kea(1, 1000), kea(2, 1000)));
    assert_eq!(rig.told(0), "+1 +2");
    fs::write(rig.path("leases"), HEADER).unwrap();
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    rig.append("leases", &kea(3, 1000));
    assert_eq!(rig.told(0), "+3");
    // Written anew, and longer than it was.
    let text = format!("{HEADER}{}{}{}", kea(4, 1000), kea(1, 1000), kea(2, 1500));
    fs::write(rig.path("leases"), text).unwrap();
    assert_eq!(rig.told(0), "+4 =2");
    assert_eq!(rig.told(1000), "-1 -3 -4");
    assert_eq!(rig.watcher.faults().count(), 0);
}

#[test]
fn deletion_and_late_creation_of_file_and_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/leases");
    let watcher = Watcher::new(&path, Format::Isc, 100).unwrap();
    let mut rig = Rig { folder, watcher };
    assert_eq!(rig.told(0), "");
    fs::create_dir(rig.path("a")).unwrap();
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    fs::create_dir(rig.path("a/b")).unwrap();
    assert!(rig.woken());
    rig.append("a/b/leases", &isc(1, 1000));
    assert_eq!(rig.told(0), "+1");
    fs::remove_file(&path).unwrap();
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    rig.append("a/b/leases", &format!("{}{}", isc(1, 1000), isc(2, 1000)));
    assert!(rig.woken());
    assert_eq!(rig.told(0), "+2");
    rig.rename("a", "z");
    rig.append("z/b/leases", &isc(3, 1000));
    assert_eq!(rig.told(0), "+3", "the file that is open is read on");
    fs::create_dir_all(rig.path("a/b")).unwrap();
    assert!(rig.woken());
    rig.append("a/b/leases", &isc(4, 1000));
    assert_eq!(rig.told(0), "+4");
    fs::remove_dir_all(rig.path("a")).unwrap();
    assert!(rig.woken());
    assert_eq!(rig.told(0), "");
    fs::create_dir_all(rig.path("a/b")).unwrap();
    rig.append("a/b/leases", &isc(5, 1000));
    assert!(rig.woken());
    assert_eq!(rig.told(0), "+5");
    assert_eq!(rig.watcher.table().len(), 5);
}

#[test]
fn a_new_file_in_the_place_of_the_old_one() {
    let mut rig = Rig::new("dhcpd.leases", Format::Isc);
    rig.append("dhcpd.leases", &format!("{}{}", isc(1, 1000), isc(2, 1000)));
    assert_eq!(rig.told(0), "+1 +2");
    rig.append("dhcpd.leases", &isc(2, 1100));
    rig.append("dhcpd.leases.new", &format!("{}{}", isc(1, 1000), isc(2, 1100)));
    fs::hard_link(rig.path("dhcpd.leases"), rig.path("dhcpd.leases~")).unwrap();
    rig.rename("dhcpd.leases.new", "dhcpd.leases");
    assert_eq!(rig.told(0), "=2");
    rig.append("dhcpd.leases", "lease 192.0.2.1 {\n  binding state free;\n");
    assert_eq!(rig.told(0), "");
    rig.append("dhcpd.leases", "}\n");
    assert_eq!(rig.told(0), "-1");
}

#[test]
fn a_long_file_is_read_in_several_calls_and_told_at_its_end() {
    let mut rig = Rig::new("leases", Format::Kea);
    let lines: String = (0..40_000_u64).map(|i| kea((i % 9) as u8 + 1, 1000 + i)).collect();
    assert!(lines.len() > AT_ONCE);
    rig.append("leases", &lines);
    let (mut calls, mut told) = (1, 0);
    while rig.watcher.poll(0, |_| told += 1).unwrap() {
        assert_eq!(told, 0);
        calls += 1;
    }
    assert!(calls > 1);
    assert_eq!(told, 9);
}

#[test]
fn what_is_over_makes_room_for_what_the_same_files_say_before_it() {
    let free = |last, expires| kea(last, expires).replace(",100,", ",0,");
    // One that the file says to be free, and one whose time has passed.
    for over in [free(9, 1000), kea(9, 400)] {
        let mut rig = Rig::new("leases", Format::Kea);
        rig.watcher = Watcher::new(&rig.path("leases"), Format::Kea, 2).unwrap();
        rig.append("leases", &format!("{HEADER}{}{}", kea(8, 1000), kea(9, 450)));
        assert_eq!(rig.told(100), "+8 +9");
        fs::write(rig.path("leases"), format!("{HEADER}{}{}{over}", kea(1, 1000), kea(8, 1000))).unwrap();
        assert_eq!((rig.told(500), rig.watcher.refused()), ("+1 -9".into(), 0));
    }
}

#[test]
fn what_is_no_file_is_refused_without_waiting() {
    let mut rig = Rig::new("leases", Format::Kea);
    fs::create_dir(rig.path("leases")).unwrap();
    assert!(rig.watcher.poll(0, |_| ()).is_err());
    fs::remove_dir(rig.path("leases")).unwrap();
    rig.append("leases", &kea(1, 1000));
    assert_eq!(rig.told(0), "+1");
}

#[test]
fn leases_end_while_the_file_cannot_be_read() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &format!("{}{}", kea(1, 1000), kea(2, 3000)));
    assert_eq!(rig.told(0), "+1 +2");
    fs::remove_file(rig.path("leases")).unwrap();
    fs::create_dir(rig.path("leases")).unwrap();
    let mut ended = Vec::new();
    rig.watcher.poll(2000, |event| ended.push(sign(&event))).unwrap_err();
    assert_eq!(ended, ["-1"]);
    // What was written meanwhile is told when it can be read.
    fs::remove_dir(rig.path("leases")).unwrap();
    rig.append("leases", &format!("{}{}", kea(1, 4000), kea(2, 3000)));
    assert_eq!(rig.told(2000), "+1");
}

#[test]
fn the_file_is_read_while_it_cannot_be_watched() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &kea(1, 1000));
    rig.watcher.inotify.fail();
    let mut told = Vec::new();
    for (now, more) in [(0, kea(2, 3000)), (2000, kea(3, 3000))] {
        rig.append("leases", &more);
        let why = rig.watcher.poll(now, |event| told.push(sign(&event))).unwrap_err();
        assert!(why.to_string().contains("cannot be watched"), "{why}");
    }
    assert_eq!(told, ["+1", "+2", "+3", "-1"]);
}

#[test]
fn why_a_lease_ended() {
    let mut rig = Rig::new("leases", Format::Kea);
    rig.append("leases", &format!("{}{}{}", kea(1, 1000), kea(2, 1000), kea(3, 1000)));
    assert_eq!(rig.told(0), "+1 +2 +3");
    rig.append("leases", &kea(1, 1000).replace(",100,", ",0,"));
    rig.append("leases", "192.0.2.2,,,100,1000,1,0,0,,1,\n");
    let mut told = Vec::new();
    let mut ended = |event| {
        let LeaseEvent::Ended(lease, why) = event else { panic!("{event:?}") };
        told.push((lease.address.octets()[3], why));
    };
    assert!(!rig.watcher.poll(2000, &mut ended).unwrap());
    assert_eq!(told, [(1, LeaseEnd::Released), (2, LeaseEnd::Declined), (3, LeaseEnd::Expired)]);
}

/// A server that writes and cleans up while we read, without a pause: whenever we look, nothing is lost or repeated.
#[test]
fn a_server_that_cleans_up_all_the_time() {
    let mut rig = Rig::new("leases", Format::Kea);
    let path = rig.folder.path().to_path_buf();
    let writer = std::thread::spawn(move || {
        let at = |name: &str| path.join(name);
        let text = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
        for round in 0..200_u64 {
            let mut file = OpenOptions::new().append(true).create(true).open(at("leases")).unwrap();
            for line in 0..5 {
                let number = round * 5 + line;
                file.write_all(kea((number % 100) as u8 + 1, 10_000 + number).as_bytes()).unwrap();
            }
            fs::rename(at("leases"), at("leases.1")).unwrap();
            fs::write(at("leases"), HEADER).unwrap();
            let mut last = std::collections::BTreeMap::new();
            let both = text("leases.2") + &text("leases.1");
            for line in both.lines().filter(|line| !line.starts_with("address")) {
                last.insert(line.split(',').next().unwrap(), line);
            }
            let lines: String = last.values().map(|line| format!("{line}\n")).collect();
            fs::write(at("leases.output"), HEADER.to_string() + &lines).unwrap();
            fs::rename(at("leases.output"), at("leases.completed")).unwrap();
            let _first = fs::remove_file(at("leases.2"));
            fs::remove_file(at("leases.1")).unwrap();
            fs::rename(at("leases.completed"), at("leases.2")).unwrap();
        }
    });
    let mut ends = std::collections::HashMap::new();
    loop {
        let done = writer.is_finished();
        while rig
            .watcher
            .poll(0, |event| match event {
                LeaseEvent::Granted(lease) => assert_eq!(ends.insert(lease.address, lease.expires), None),
                LeaseEvent::Renewed(lease) => {
                    let before = ends.insert(lease.address, lease.expires).unwrap();
                    assert!(before < lease.expires, "{lease:?} after {before:?}");
                }
                LeaseEvent::Ended(..) => panic!("{event:?}"),
            })
            .unwrap()
        {}
        if done {
            break;
        }
    }
    writer.join().unwrap();
    let expected =
        (1..=100).map(|last| (std::net::Ipv4Addr::new(192, 0, 2, last), Some(10_899 + u64::from(last))));
    assert_eq!(ends, expected.collect());
    assert_eq!(rig.watcher.faults().count(), 0);
}

#[test]
fn leases_that_a_wrong_clock_ended_come_back_with_the_right_one() {
    for (name, format, line) in
        [("leases", Format::Kea, kea as fn(u8, u64) -> String), ("dhcpd.leases", Format::Isc, isc)]
    {
        let mut rig = Rig::new(name, format);
        let head = if matches!(format, Format::Kea) { HEADER } else { "" };
        rig.append(name, &format!("{head}{}{}", line(1, 1_000), line(2, 9_000)));
        assert_eq!(rig.told(500), "+1 +2");
        assert_eq!(rig.told(5_000), "-1", "two hours ahead");
        assert_eq!(rig.told(600), "+1");
        assert_eq!(rig.told(601), "");
    }
}
