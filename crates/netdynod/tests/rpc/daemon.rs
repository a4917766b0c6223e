//! A daemon of a test's own, and connections to it that hide nothing.

use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest wait for anything that should come.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub const TOKEN: &str = "0123456789abcdef0123";

/// Serves in a temporary folder; killed in the end.
pub struct Daemon {
    pub child: Child,
    folder: TempDir,
}

impl Daemon {
    pub fn start() -> Self {
        Self::begin(tempfile::tempdir().unwrap(), &[])
    }

    /// One that logs each call.
    pub fn talkative() -> Self {
        Self::begin(tempfile::tempdir().unwrap(), &["--log-level", "debug"])
    }

    /// One that serves TCP too, and where.
    pub fn with_tcp() -> (Self, String) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        std::fs::write(&file, TOKEN).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let arguments =
            ["--tcp", "127.0.0.1:0", "--token-file", &file, "--files", folder.path().to_str().unwrap()];
        let arguments = arguments.map(str::to_owned);
        let daemon = Self::begin(folder, &arguments.each_ref().map(String::as_str));
        let entry = daemon.logged("serving TCP");
        (daemon, entry["address"].as_str().unwrap().to_owned())
    }

    /// Another in the place of one that has ended.
    pub fn again(&mut self) {
        self.child = spawn(&self.folder, &[]);
    }

    fn begin(folder: TempDir, arguments: &[&str]) -> Self {
        Self { child: spawn(&folder, arguments), folder }
    }

    /// A file beside its socket; over TCP those here can be named.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("core.sock")
    }

    pub fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client::new(stream.try_clone().unwrap(), stream)
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The fields of the log entry with this message, once it is there.
    pub fn logged(&self, message: &str) -> Value {
        let mut found = Value::Null;
        until(message, || {
            let log = self.log();
            let mut entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let wanted =
                |entry: &Value| entry["fields"]["message"].as_str().is_some_and(|m| m.contains(message));
            found = entries.find(wanted).unwrap_or_default()["fields"].clone();
            !found.is_null()
        });
        found
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

/// A daemon that is ready.
fn spawn(folder: &TempDir, arguments: &[&str]) -> Child {
    let (socket, log) = (folder.path().join("core.sock"), folder.path().join("log"));
    let mut child = Command::new(env!("CARGO_BIN_EXE_netdynod"))
        .arg("--socket")
        .arg(&socket)
        .arg("--log-json")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&ready).ok(),
        Some(json!({"ready": socket, "pid": child.id()})),
        "{}",
        std::fs::read_to_string(log).unwrap()
    );
    child
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Ask until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One connection.
pub struct Client {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    last: u64,
    /// Notifications that came while something else was waited for.
    told: Vec<Value>,
}

impl Client {
    fn new(reader: impl Read + Send + 'static, writer: impl Write + Send + 'static) -> Self {
        let reader = BufReader::new(Box::new(reader) as Box<dyn Read + Send>);
        Self { reader, writer: Box::new(writer), last: 0, told: Vec::new() }
    }

    pub fn tcp(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(stream.try_clone().unwrap(), stream)
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes)
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes.as_ref()).unwrap();
    }

    /// The next line, whatever it is; `None` at the end.
    pub fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) if !line.ends_with('\n') => None, // cut off, if there is any of it
            Ok(_) => Some(serde_json::from_str(&line).unwrap()),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => None,
            Err(e) => panic!("no line: {e}"),
        }
    }

    /// The answer to what was asked as `id`; notifications before it are kept.
    pub fn answer(&mut self, id: impl Into<Value>) -> Value {
        let id = id.into();
        loop {
            let line = self.line().expect("the daemon hung up");
            if line.get("method").is_none() {
                assert_eq!((&line["jsonrpc"], &line["id"]), (&json!("2.0"), &id), "{line}");
                return line;
            }
            self.told.push(line);
        }
    }

    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last += 1;
        self.send(request(self.last, method, params));
        self.answer(self.last)
    }

    /// A call that must succeed.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.ask(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    /// A call without parameters that must succeed.
    pub fn get(&mut self, method: &str) -> Value {
        self.call(method, json!({}))
    }

    /// A call that must fail, so. Its data is given.
    pub fn fails(&mut self, method: &str, params: Value, code: i32) -> Map<String, Value> {
        error(&self.ask(method, params), code)
    }

    /// The next notification.
    pub fn notification(&mut self) -> Option<Value> {
        if self.told.is_empty() { self.line() } else { Some(self.told.remove(0)) }
    }

    /// The notifications up to the status with `state`: statuses, and points of the series. Who writes keeps
    /// his lease meanwhile.
    pub fn told_until(&mut self, state: &str) -> (Vec<Value>, Vec<Value>) {
        let (mut statuses, mut points) = (Vec::<Value>::new(), Vec::new());
        while statuses.last().is_none_or(|last| last["state"] != state) {
            let mut line = self.notification().expect("the daemon hung up");
            assert!(line.get("id").is_none(), "{line}");
            let _gone = self.try_send(b"{\"jsonrpc\": \"2.0\", \"method\": \"control.heartbeat\"}\n");
            match line["method"].as_str() {
                Some("run.state") => statuses.push(line["params"].take()),
                Some("stats.sample") => points.push(line["params"].take()),
                _ => panic!("{line}"),
            }
        }
        (statuses, points)
    }
}

/// A request as a line.
pub fn request(id: u64, method: &str, params: Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// The data of an answer that is an error of this code, and says all that an error must.
pub fn error(answer: &Value, code: i32) -> Map<String, Value> {
    let error = &answer["error"];
    assert_eq!(error["code"], code, "{answer}");
    let data = error["data"].as_object().unwrap_or_else(|| panic!("no data: {answer}"));
    assert!(data["code"].as_str().is_some_and(|c| c.starts_with("ND-")), "{answer}");
    for key in ["what", "fix"] {
        assert!(data[key].as_str().is_some_and(|text| !text.is_empty()), "no {key}: {answer}");
    }
    assert!(data.contains_key("at") && error["message"].as_str().is_some_and(|m| !m.is_empty()), "{answer}");
    data.clone()
}

pub fn states(statuses: &[Value]) -> Vec<&str> {
    statuses.iter().filter_map(|s| s["state"].as_str()).collect()
}

/// A port on loopback that takes what comes.
pub fn sink() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// 200 datagrams a second from two devices to `sink`, in a measure phase of `measure`.
pub fn profile(sink: &UdpSocket, measure: &str) -> Value {
    let target = format!("udp://{}", sink.local_addr().unwrap());
    let model = json!({"stream": {"rate": "100/s", "echo": false, "size": "64B"}});
    json!({
        "name": "test",
        "groups": [{"name": "s", "target": target, "devices": 2, "model": model}],
        "phases": {"warmup": "0s", "measure": measure, "drain": "200ms", "sample": "100ms"},
    })
}

/// A writer with that profile loaded.
pub fn loaded(daemon: &Daemon, sink: &UdpSocket, measure: &str) -> Client {
    let mut writer = daemon.connect();
    writer.get("control.acquire");
    writer.call("run.load", json!({"profile": profile(sink, measure)}));
    writer
}
