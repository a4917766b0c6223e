//! A host for tests: a thread in a network namespace of its own, which ends with it.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};

type Work = Box<dyn FnOnce() + Send>;

pub struct Host {
    work: Sender<Work>,
    /// The file of its namespace.
    pub namespace: PathBuf,
}

impl Host {
    /// `None`, and the test is skipped, where there are no rights for it, or no taps.
    pub fn new() -> Option<Self> {
        if !Path::new("/dev/net/tun").exists() {
            outcome::skipped("there is no /dev/net/tun");
            return None;
        }
        let (work, todo) = channel::<Work>();
        let (ready, namespace) = channel();
        std::thread::spawn(move || {
            if let Err(why) = outcome::unshare_network() {
                return drop(ready.send(Err(why)));
            }
            // Only what the tests send is on the link, from the first packet on.
            for scope in ["all", "default"] {
                let _none = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
            }
            let thread = std::fs::read_link("/proc/thread-self").unwrap();
            ready.send(Ok(PathBuf::from("/proc").join(thread).join("ns/net"))).unwrap();
            todo.into_iter().for_each(|work| work());
        });
        let namespace =
            namespace.recv().expect("the host says how it began").map_err(outcome::skipped).ok()?;
        Some(Self { work, namespace })
    }

    /// What `work` says, done there.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = channel();
        self.work.send(Box::new(move || drop(tell.send(work())))).unwrap();
        told.recv().expect("work in a host does not panic")
    }

    /// What a command prints there, or what it complains of.
    pub fn ask(&self, words: &str) -> Result<String, String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let done = self.run(move || Command::new(&words[0]).args(&words[1..]).output());
        let done = done.map_err(|why| why.to_string())?;
        match done.status.success() {
            true => Ok(String::from_utf8(done.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&done.stderr).into_owned()),
        }
    }

    /// What a command prints there; it must not fail.
    pub fn sh(&self, words: &str) -> String {
        self.ask(words).unwrap_or_else(|why| panic!("{words}: {why}"))
    }
}
