//! Two hosts, network namespaces, joined by an impaired link: how fast is it, and how exact? Wants root, `ip`
//! and `iperf3`. Prints what iperf3 saw, what a prober of its own saw, and what the link counted.
//!
//!     store run --release -p impair --example impair_link [SECONDS] [two] [ordinary] [veth]

use impair::spec::LinkSpec;
use impair::tap::{Link, Options, TapLocation};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::{Value, from_value, json};
use std::error::Error;
use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn ip(words: &str) -> Result<()> {
    let done = Command::new("ip").args(words.split(' ')).output()?;
    let why = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {words}: {why}").into()) }
}

/// Two namespaces, gone when dropped.
struct Hosts([String; 2]);

impl Hosts {
    fn new() -> Result<Self> {
        let hosts = Self(["a", "b"].map(|end| format!("impair-{}-{end}", std::process::id())));
        for host in &hosts.0 {
            ip(&format!("netns add {host}"))?;
            // Windows of long and fast paths; and what began with BBR would be paced by timers ever after.
            let set = "net.ipv4.tcp_rmem=4096 131072 268435456|net.ipv4.tcp_wmem=4096 131072 268435456|\
                       net.ipv4.tcp_congestion_control=reno";
            for set in set.split('|') {
                Command::new("ip").args(["netns", "exec", host, "sysctl", "-qw", set]).status()?;
            }
        }
        Ok(hosts)
    }

    fn place(&self, end: usize) -> TapLocation {
        TapLocation::new(Some(PathBuf::from("/run/netns").join(&self.0[end])), "link")
    }

    fn address(&self) -> Result<()> {
        for (end, host) in self.0.iter().enumerate() {
            ip(&format!("-n {host} addr add 10.77.0.{}/24 dev link", end + 1))?;
            ip(&format!("-n {host} link set dev link up"))?;
        }
        Ok(())
    }

    /// A thread in that host.
    fn within<T: Send + 'static>(&self, end: usize, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let path = format!("/run/netns/{}", self.0[end]);
        let thread = std::thread::spawn(move || -> std::io::Result<T> {
            move_into_link_name_space(File::open(path)?.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(work())
        });
        Ok(thread.join().map_err(|_| "a thread panicked")??)
    }

    fn iperf(&self, end: usize, words: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[end], "iperf3"]).args(words.split(' '));
        command
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.0.iter().for_each(|host| drop(ip(&format!("netns del {host}"))));
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// One TCP stream from a to b: bit/s, retransmits.
fn stream(hosts: &Hosts, seconds: u64, more: &str) -> Result<(f64, u64)> {
    let _server = Server(hosts.iperf(1, "-s -1").stdout(Stdio::null()).spawn()?);
    std::thread::sleep(Duration::from_millis(300));
    let words = format!("-J -c 10.77.0.2 -C cubic -O 1 -t {seconds}{more}");
    let done = hosts.iperf(0, &words).stderr(Stdio::inherit()).output()?;
    let seen: Value = serde_json::from_slice(&done.stdout)?;
    let sent = &seen["end"]["sum_sent"];
    let received = seen["end"]["sum_received"]["bits_per_second"].as_f64();
    Ok((received.ok_or("no result")?, sent["retransmits"].as_u64().unwrap_or(0)))
}

/// So that what is seen is the link, and not the prober waiting for its turn. Where it is not allowed it waits.
fn before_others() {
    let fifo = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let _ordinary = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Max, fifo);
}

/// One-way delays a to b in µs, of a datagram a millisecond, until `done`.
fn probe(hosts: &Hosts, done: &'static AtomicBool) -> Result<std::thread::JoinHandle<Vec<f64>>> {
    let bind = |address: &'static str| move || UdpSocket::bind(address);
    let (from, to) = (hosts.within(0, bind("10.77.0.1:0"))??, hosts.within(1, bind("10.77.0.2:7777"))??);
    to.set_read_timeout(Some(Duration::from_millis(500)))?;
    let zero = Instant::now();
    std::thread::spawn(move || {
        before_others();
        while !done.load(Ordering::Relaxed) {
            let stamp = (zero.elapsed().as_nanos() as u64).to_ne_bytes();
            let _lost = from.send_to(&stamp, "10.77.0.2:7777");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    Ok(std::thread::spawn(move || {
        before_others();
        let (mut delays, mut stamp) = (Vec::new(), [0; 8]);
        while to.recv(&mut stamp).is_ok() {
            delays.push((zero.elapsed().as_nanos() as u64 - u64::from_ne_bytes(stamp)) as f64 / 1e3);
        }
        delays.sort_by(f64::total_cmp);
        delays
    }))
}

fn case(name: &str, way: Value, seconds: u64, more: &str, options: &Options, delay_us: f64) -> Result<()> {
    static DONE: AtomicBool = AtomicBool::new(false);
    let spec: LinkSpec = from_value(json!({"seed": 1, "a_to_b": way, "b_to_a": {"delay": way["delay"]}}))?;
    spec.check()?;
    let hosts = Hosts::new()?;
    let link = Link::start(&hosts.place(0), &hosts.place(1), &spec, options)?;
    hosts.address()?;
    std::thread::sleep(Duration::from_millis(200));
    DONE.store(false, Ordering::Relaxed);
    let prober = if delay_us > 0.0 { Some(probe(&hosts, &DONE)?) } else { None };
    let (bits, retransmits) = stream(&hosts, seconds, more)?;
    DONE.store(true, Ordering::Relaxed);
    let [there, back] = link.live().stats();
    println!("{name}: {:.2} Gbit/s, {retransmits} retransmits", bits / 1e9);
    println!(
        "  link: lost {}, late p50 {:.1} p99 {:.1} max {:.1} µs; back p50 {:.1} p99 {:.1}; not asked for {}",
        there.lost,
        there.late_p50_ns as f64 / 1e3,
        there.late_p99_ns as f64 / 1e3,
        there.late_max_ns as f64 / 1e3,
        back.late_p50_ns as f64 / 1e3,
        back.late_p99_ns as f64 / 1e3,
        there.queue_full
            + there.not_taken
            + back.queue_full
            + back.not_taken
            + link.missed_frames().iter().sum::<u64>(),
    );
    if let Some(delays) = prober.map(std::thread::JoinHandle::join) {
        let delays = delays.map_err(|_| "the prober panicked")?;
        let at = |share: f64| {
            delays.get((delays.len() as f64 * share) as usize).map_or(f64::NAN, |delay| delay - delay_us)
        };
        println!("  prober, error of {} datagrams: p50 {:.1} p99 {:.1} µs", delays.len(), at(0.5), at(0.99));
    }
    if let Some(Ok(p)) = way["loss"]["independent"].as_str().map(str::parse::<protocol::unit::Share>) {
        // Mathis and others 1997: mss / rtt * sqrt(3/2) / sqrt(p).
        let rtt = 2.0 * delay_us / 1e6;
        println!("  Mathis: {:.3} Gbit/s", 1448.0 * 8.0 / rtt * (1.5 / p.probability()).sqrt() / 1e9);
    }
    Ok(())
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(5);
    let asked = |word: &str| words.iter().any(|w| w == word);
    let options = Options { two_threads: asked("two"), realtime: !asked("ordinary"), ..Options::default() };
    if asked("veth") {
        let hosts = Hosts::new()?;
        let [a, b] = &hosts.0;
        ip(&format!("link add name link netns {a} type veth peer name link netns {b}"))?;
        hosts.address()?;
        let (bits, retransmits) = stream(&hosts, seconds, "")?;
        println!("plain veth pair: {:.2} Gbit/s, {retransmits} retransmits", bits / 1e9);
    }
    let delay = |delay: &str| json!({"delay": {"constant": delay}});
    case("delay 0", delay("0ms"), seconds, "", &options, 0.0)?;
    case("10 ms one way", delay("10ms"), seconds, "", &options, 10_000.0)?;
    case("10 ms one way at 5 Gbit/s", delay("10ms"), seconds, " --fq-rate 5G", &options, 10_000.0)?;
    let lossy = json!({"delay": {"constant": "2ms"}, "loss": {"independent": "0.1%"}});
    case("2 ms one way, 0.1 % lost", lossy, seconds * 2, "", &options, 2_000.0)
}
