//! Against the TCP of Linux, over a tap in a network namespace: byte for byte, both ways, with loss and reordering and without.

use crate::wire::{Frames, MS, config, ip};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use stack::{Counters, DropReason, Handle, Received, Stack, TcpConfig};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tun_rs::{DeviceBuilder, Layer, SyncDevice};

/// Longer than any usual transfer takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// The link to the kernel of this thread's namespace.
struct Lab {
    device: SyncDevice,
    stack: Stack,
    begun: Instant,
    rng: SmallRng,
    /// Of a thousand frames each way: lost, and held back behind the next ones.
    loss: u32,
    late: u32,
    held: Vec<(u64, bool, Vec<u8>)>,
    /// A test that hangs ends.
    patience: Duration,
    /// Every frame, as a capture file has it; none where there are too many to keep.
    pcap: Option<Vec<u8>>,
}

/// A payload that no shift of it equals.
fn payload(len: usize, salt: u64) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(salt) >> 56) as u8).collect()
}

impl Lab {
    fn new(loss: u32, late: u32, tcp: TcpConfig) -> Option<Self> {
        if !Path::new("/dev/net/tun").exists() {
            outcome::skipped("there is no /dev/net/tun");
            return None;
        }
        if !outcome::network_namespace() {
            return None;
        }
        let builder = DeviceBuilder::new().name("nd-stack").layer(Layer::L2).enable(true);
        let device = builder.build_sync().expect("a tap");
        device.set_nonblocking(true).expect("non-blocking");
        for words in ["10.0.0.2/24 dev nd-stack", "fd00::2/64 dev nd-stack nodad"] {
            let done = Command::new("ip").args(["address", "add"]).args(words.split(' ')).status();
            assert!(done.expect("iproute2").success());
        }
        let stack = Stack::new(config(0, tcp));
        // the header of a capture file: microseconds, Ethernet
        let pcap = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1]
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let (begun, rng) = (Instant::now(), SmallRng::seed_from_u64(5));
        Some(Self {
            device,
            stack,
            begun,
            rng,
            loss,
            late,
            held: Vec::new(),
            patience: PATIENCE,
            pcap: Some(pcap),
        })
    }

    fn now(&self) -> u64 {
        1_000 * MS + self.begun.elapsed().as_nanos() as u64
    }

    fn record(&mut self, frame: &[u8]) {
        let Some(pcap) = &mut self.pcap else { return };
        let at = self.begun.elapsed();
        let words = [at.as_secs() as u32, at.subsec_micros(), frame.len() as u32, frame.len() as u32];
        pcap.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        pcap.extend_from_slice(frame);
    }

    /// One frame's way: it passes, or gets lost, or is held back.
    fn passes(&mut self, to_us: bool, frame: &[u8], now: u64) -> bool {
        if self.rng.random_range(0..1000) < self.loss {
            return false;
        }
        let late = self.rng.random_range(0..1000) < self.late;
        if late {
            self.held.push((now + self.rng.random_range(0..5 * MS), to_us, frame.to_vec()));
        }
        !late
    }

    fn turn(&mut self) {
        let mut buffer = [0; 2048];
        let now = self.now();
        while let Ok(n) = self.device.recv(&mut buffer) {
            let frame = &buffer[..n];
            self.record(frame);
            if self.passes(true, frame, now) {
                self.stack.receive(frame, now);
            }
        }
        let due: Vec<_> = self.held.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, to_us, frame) in due {
            if to_us {
                self.stack.receive(&frame, now);
            } else {
                self.device.send(&frame).expect("sent");
            }
        }
        self.stack.advance(now);
        while self.stack.event().is_some() {}
        let mut out = Frames::default();
        assert!(self.stack.transmit(now, &mut out));
        for frame in out.0 {
            self.record(&frame);
            if self.passes(false, &frame, now) {
                self.device.send(&frame).expect("sent");
            }
        }
    }

    /// Go on until `done`.
    fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        while !done(self) {
            assert!(self.begun.elapsed() < self.patience, "{:?}", self.stack.counters());
            self.turn();
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Send all of `sent` and read as much back, or whatever comes until the end.
    fn exchange(&mut self, handle: Handle, sent: &[u8]) -> Vec<u8> {
        let (mut given, mut back, mut shut) = (0, Vec::new(), false);
        let mut buffer = vec![0; 32 << 10];
        self.until(|lab| {
            let now = lab.now();
            given += lab.stack.write(handle, &sent[given..], now).expect("open");
            if given == sent.len() && !shut {
                lab.stack.shut_down(handle, now);
                shut = true;
            }
            loop {
                match lab.stack.read(handle, &mut buffer, now).expect("no error") {
                    Received::Bytes(n, _) => back.extend_from_slice(&buffer[..n]),
                    Received::Dry => return false,
                    Received::End => return shut,
                }
            }
        });
        let now = self.now();
        self.stack.close(handle, now);
        // its last acknowledgment leaves
        self.turn();
        back
    }

    /// Number of frames that tshark finds by this filter; `None`, and said, where it is not installed.
    fn tshark(&self, filter: &str) -> Option<usize> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), self.pcap.as_ref().expect("recorded")).expect("written");
        let args = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", filter, "-r"];
        let Ok(found) = Command::new("tshark").args(args).arg(file.path()).output() else {
            outcome::skipped("tshark is not installed");
            return None;
        };
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        Some(String::from_utf8_lossy(&found.stdout).lines().count())
    }
}

/// A server of Linux that sends back what it gets, once; what it got.
fn echo_server(v6: bool) -> (SocketAddr, JoinHandle<usize>) {
    let listener = TcpListener::bind(SocketAddr::new(ip(1, v6), 0)).expect("listens");
    let address = listener.local_addr().expect("bound");
    let serve = move || {
        let (mut stream, _) = listener.accept().expect("accepted");
        let mut back = stream.try_clone().expect("cloned");
        let (mut buffer, mut all) = ([0; 16 << 10], 0);
        loop {
            match stream.read(&mut buffer).expect("read") {
                0 => break all,
                n => {
                    all += n;
                    back.write_all(&buffer[..n]).expect("written");
                }
            }
        }
    };
    (address, std::thread::spawn(serve))
}

fn echoed(lab: &mut Lab, len: usize, v6: bool) -> Counters {
    let (address, server) = echo_server(v6);
    let sent = payload(len, 1);
    let now = lab.now();
    let handle = lab.stack.connect(ip(0, v6), address, 1, now).expect("a port");
    let back = lab.exchange(handle, &sent);
    assert!(back == sent, "{} of {len} bytes came back, or others", back.len());
    lab.until(|_| server.is_finished());
    assert_eq!(server.join().expect("served"), len);
    *lab.stack.counters()
}

#[test]
fn what_linux_echoes_comes_back_byte_for_byte() {
    let Some(mut lab) = Lab::new(0, 0, TcpConfig::default()) else { return };
    for v6 in [false, true] {
        let counters = echoed(&mut lab, 3_000_000, v6);
        for drop in [
            DropReason::Malformed,
            DropReason::BadChecksum,
            DropReason::BadAck,
            DropReason::OldTimestamp,
            DropReason::Challenged,
        ] {
            assert_eq!(counters.dropped(drop), 0, "{drop:?} {counters:?}");
        }
        // a probe is sent where the machine gave the server no time to acknowledge
        assert_eq!(
            (counters.retransmitted.saturating_sub(counters.probes), counters.timeouts),
            (0, 0),
            "{counters:?}"
        );
    }
    let probes = lab.stack.counters().probes as usize;
    let Some(malformed) = lab.tshark("_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0")
    else {
        return;
    };
    assert_eq!(malformed, 0);
    let ours = "eth.src == 02:00:00:00:00:01";
    let again =
        "tcp.analysis.retransmission || tcp.analysis.fast_retransmission || tcp.analysis.out_of_order";
    let again = lab.tshark(&format!("{ours} && ({again} || tcp.analysis.spurious_retransmission)"));
    assert!(again.is_some_and(|again| again <= probes), "{again:?} and {probes} probes");
    assert!(
        lab.tshark("tcp && eth.src == 02:00:00:00:00:01").is_some_and(|all| all > 2_000),
        "it saw the transfer"
    );
}

#[test]
fn loss_and_reordering_change_nothing_for_the_bytes() {
    // options as others have them
    for (sack, timestamps) in [(true, true), (false, true), (true, false)] {
        let tcp = TcpConfig { sack, timestamps, ..TcpConfig::default() };
        let Some(mut lab) = Lab::new(20, 30, tcp) else { return };
        let counters = echoed(&mut lab, 500_000, false);
        assert!(counters.retransmitted > 0, "something was lost: {counters:?}");
    }
}

/// A payload of any length: a block of a prime length, again and again.
struct Endless {
    block: Vec<u8>,
}

impl Endless {
    fn new(salt: u64) -> Self {
        Self { block: payload(1_048_583, salt) }
    }

    /// What comes at an offset, up to the end of the block or of `len` bytes in all.
    fn at(&self, offset: u64, len: u64) -> &[u8] {
        let rest = &self.block[(offset % self.block.len() as u64) as usize..];
        &rest[..(len - offset).min(rest.len() as u64) as usize]
    }

    /// Whether `bytes` are what comes at an offset.
    fn is_at(&self, mut offset: u64, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let all = self.at(offset, u64::MAX);
            let (now, rest) = bytes.split_at(bytes.len().min(all.len()));
            if *now != all[..now.len()] {
                return false;
            }
            (offset, bytes) = (offset + now.len() as u64, rest);
        }
        true
    }
}

#[test]
fn a_long_transfer_with_loss_and_reordering_is_byte_for_byte_both_ways() {
    // a gibibyte in the long run of the tests
    let full = std::env::var_os("NETDYNO_TESTS").is_some_and(|which| which == "full");
    let len: u64 = if full { 1 << 30 } else { 8 << 20 };
    let Some(mut lab) = Lab::new(10, 10, TcpConfig::default()) else { return };
    lab.pcap = None;
    lab.patience = Duration::from_secs(1_200);
    let (address, server) = echo_server(false);
    let now = lab.now();
    let handle = lab.stack.connect(ip(0, false), address, 1, now).expect("a port");
    let content = Endless::new(1);
    let (mut given, mut back, mut shut) = (0, 0, false);
    let mut buffer = vec![0; 64 << 10];
    lab.until(|lab| {
        let now = lab.now();
        while given < len {
            match lab.stack.write(handle, content.at(given, len), now).expect("open") {
                0 => break,
                n => given += n as u64,
            }
        }
        if given == len && !shut {
            lab.stack.shut_down(handle, now);
            shut = true;
        }
        loop {
            match lab.stack.read(handle, &mut buffer, now).expect("no error") {
                Received::Bytes(n, _) => {
                    assert!(content.is_at(back, &buffer[..n]), "other bytes within {n} at {back}");
                    back += n as u64;
                }
                Received::Dry => return false,
                Received::End => return shut,
            }
        }
    });
    assert_eq!((given, back), (len, len));
    let now = lab.now();
    lab.stack.close(handle, now);
    lab.until(|_| server.is_finished());
    assert_eq!(server.join().expect("served") as u64, len, "Linux got all of it");
    let counters = lab.stack.counters();
    // a hundredth of the frames is lost
    assert!(counters.retransmitted > len / 1_460 / 200, "something was lost: {counters:?}");
    println!("{len} bytes each way in {:.1} s: {counters:?}", lab.begun.elapsed().as_secs_f64());
}

#[test]
fn linux_connects_to_us_and_gets_what_we_send() {
    let Some(mut lab) = Lab::new(10, 20, TcpConfig::default()) else { return };
    lab.stack.listen(80, 10);
    let client = std::thread::spawn(move || {
        let mut stream = TcpStream::connect((ip(0, false), 80)).expect("connected");
        let sent = payload(300_000, 7);
        let mut writer = stream.try_clone().expect("cloned");
        let copy = sent.clone();
        let write = std::thread::spawn(move || {
            writer.write_all(&copy).expect("written");
            writer.shutdown(std::net::Shutdown::Write).expect("shut");
        });
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        write.join().expect("all written");
        all
    });
    let mut handle = None;
    lab.until(|lab| {
        handle = lab.stack.accept(9);
        handle.is_some()
    });
    let sent = payload(400_000, 3);
    let got = lab.exchange(handle.expect("accepted"), &sent);
    assert!(got == payload(300_000, 7), "{} bytes", got.len());
    lab.until(|_| client.is_finished());
    assert!(client.join().expect("a client") == sent);
}

#[test]
fn a_port_where_nobody_listens_refuses_us_and_ours_refuses_linux() {
    let Some(mut lab) = Lab::new(0, 0, TcpConfig::default()) else { return };
    let now = lab.now();
    let remote = SocketAddr::new(ip(1, false), 9);
    let handle = lab.stack.connect(ip(0, false), remote, 1, now).expect("a port");
    let mut why = None;
    lab.until(|lab| {
        let now = lab.now();
        why = lab.stack.read(handle, &mut [0], now).err();
        why.is_some()
    });
    assert_eq!(why.map(|why| why.to_string()).as_deref(), Some("connection refused"));
    let client = std::thread::spawn(|| TcpStream::connect((ip(0, false), 81)).map_err(|why| why.kind()));
    lab.until(|_| client.is_finished());
    assert_eq!(client.join().expect("a client").err(), Some(std::io::ErrorKind::ConnectionRefused));
    let resets = lab.tshark("tcp.flags.reset == 1");
    assert!(resets.is_none_or(|resets| resets == 2), "{resets:?}");
}

#[test]
fn echo_requests_of_linux_are_answered() {
    let Some(mut lab) = Lab::new(0, 0, TcpConfig::default()) else { return };
    for target in ["10.0.0.1", "fd00::1"] {
        let ping =
            std::thread::spawn(move || Command::new("ping").args(["-c", "2", "-i", "0.2", target]).output());
        lab.until(|_| ping.is_finished());
        match ping.join().expect("a ping") {
            Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
            Err(_) => return outcome::skipped("ping is not installed"),
        }
    }
}
