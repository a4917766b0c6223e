//! Workers that cannot all be started: the start fails with the reason, and none of them stays behind.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use run::{Control, Plan, SetupError, Transport, Trial};
use serde_json::json;
use sockets::Sockets;
use std::fs::File;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

/// Both tests take something away from the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// Start four workers while something is short.
fn start() -> SetupError {
    let profile = crate::lab::profile(json!([{"name": "s", "target": "udp://127.0.0.1:9", "devices": 4,
        "model": {"stream": {"echo": false}}}]));
    let profile = profile::load(&profile.to_string()).expect("a good profile");
    let plan = Arc::new(Plan::new(profile, &Trial::default()).expect("a plan"));
    let core = run::cpu::cores()[0];
    let settings = profile::Sockets { cores: vec![core; 4] };
    let transport = Sockets::new(&settings).expect("a core");
    let (samples, _all) = channel();
    let control = Arc::new(Control::new(0, 1_000_000_000, 0, 1_000_000_000));
    transport.start(plan, control, samples).expect_err("not all four can be started")
}

/// Workers of this process.
fn left_behind() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("this process").flatten();
    threads
        .filter(|thread| {
            let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
            name.starts_with("nd-worker-")
        })
        .count()
}

#[test]
fn too_few_threads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // the limit is per user and does not hold for root: this thread becomes somebody with no other threads
    let user = rustix::process::Uid::from_raw(54_321);
    if let Err(why) = rustix::thread::set_thread_res_uid(user, user, user) {
        return outcome::skipped(format_args!("it needs root to become another user ({why})"));
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NPROC).expect("a limit");
    setrlimit(Resource::RLIMIT_NPROC, 3, hard).expect("a lower limit");
    let refused = start();
    setrlimit(Resource::RLIMIT_NPROC, soft, hard).expect("back");
    assert_eq!((refused.code, refused.at.as_str()), ("ND-92-05", "workers"), "{refused}");
    assert_eq!(left_behind(), 0);
}

#[test]
fn too_few_files() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    // more than a start asks for
    setrlimit(Resource::RLIMIT_NOFILE, 1024, hard).expect("another limit");
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    // enough for one worker's epoll, and for nothing else
    files.pop();
    let refused = start();
    drop(files);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).expect("back");
    assert_eq!((refused.code, refused.at.as_str()), ("ND-92-01", "epoll"), "{refused}");
    assert_eq!(left_behind(), 0);
}
