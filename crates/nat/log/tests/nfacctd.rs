//! What nfacctd (pmacct), a collector that is not ours, reads of a log: the ports of blocks too.

use crate::common::{AT, events, listens};
use nat_log::{Logger, Sender, Transport, ipfix, queue};
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _told = Command::new("kill").args(["-INT", &self.0.id().to_string()]).status();
        let _reaped = self.0.wait();
    }
}

#[test]
fn port_blocks_are_read_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let port = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port();
    let primitives = "name=range_start field_type=361 len=2 semantics=u_int\n\
                      name=range_end field_type=362 len=2 semantics=u_int\n\
                      name=instance field_type=463 len=4 semantics=u_int\n";
    std::fs::write(path("primitives"), primitives).expect("a file");
    let config = format!(
        "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {port}\nnfacctd_time_new: true\n\
         plugins: print\naggregate: src_host, post_nat_src_host, nat_event, range_start, range_end, instance\n\
         aggregate_primitives: {}\nprint_output: csv\nprint_output_file: {}\n\
         print_refresh_time: 1\nprint_history: 1m\nprint_output_file_append: true\n",
        path("primitives"),
        path("records")
    );
    std::fs::write(path("config"), config).expect("a file");
    let child = Command::new("nfacctd")
        .args(["-f", &path("config")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        return outcome::skipped("nfacctd is not installed");
    };
    let mut collector = Running(child);
    let (mut producer, consumer) = queue(64);
    let exporter = ipfix::Exporter::new(ipfix::Config::default()).expect("a configuration");
    let sender = Sender::new(Transport::Udp, (Ipv4Addr::LOCALHOST, port).into());
    let mut logger = Logger::new(exporter, sender, vec![consumer]);
    while !listens(port) {
        assert!(collector.0.try_wait().expect("a child").is_none(), "nfacctd ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = String::new();
    // It takes a while until its plugin listens; what it was sent before is gone.
    for round in 0..100 {
        for event in events() {
            assert!(producer.push(event) || round > 0);
        }
        logger.turn(AT + round * 60_000);
        std::thread::sleep(Duration::from_millis(200));
        text = std::fs::read_to_string(path("records")).unwrap_or_default();
        if text.contains("1535") {
            break;
        }
    }
    let title: Vec<&str> = text.lines().next().unwrap_or_default().split(',').collect();
    let read = |names: [&str; 6]| {
        let at = names.map(|name| title.iter().position(|title| *title == name).expect(name));
        let fields = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            at.map(|at| fields[at].trim()).join(" ")
        };
        text.lines().map(fields).collect::<Vec<_>>()
    };
    let records = read(["NAT_EVENT", "SRC_IP", "POST_NAT_SRC_IP", "range_start", "range_end", "instance"]);
    for event in [16, 17] {
        let want = format!("{event} 10.0.0.7 192.0.2.1 1024 1535 1");
        assert!(records.contains(&want), "{text}");
    }
}
