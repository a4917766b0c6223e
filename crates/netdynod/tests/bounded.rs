//! `netdynod validate` reads no more than it can hold, and ends with a code of its own whatever its surroundings are.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use nix::sys::resource::{UsageWho, getrusage};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

fn netdynod() -> Command {
    Command::new(env!("CARGO_BIN_EXE_netdynod"))
}

/// What it says to a profile on standard input.
fn validate(text: &[u8]) -> (Option<i32>, String) {
    let mut child = netdynod()
        .args(["validate", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may stop reading before the end.
    let _enough = child.stdin.take().unwrap().write_all(text);
    said(child.wait_with_output().unwrap())
}

fn said(output: Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn no_profile_takes_more_than_its_share_of_memory() {
    let group = r#"{"name": "g", "target": "udp://127.0.0.1:9", "model": {"stream": {}}}"#;
    let of = |inner: &str| format!(r#"{{"name": "x", "groups": [{inner}]}}"#);
    let source = |texts: &str| {
        of(&format!(
            r#"{{"name": "g", "target": "udp://127.0.0.1:9", "model": {{"stream": {{}}}}, "source": [{texts}]}}"#
        ))
    };
    let (long, longer) = ("x".repeat(1_000_000), || "x".repeat(15 << 20));
    // Each text is made when it is wanted: what a child is told of its largest size begins with ours.
    type Text<'a> = &'a dyn Fn() -> String;
    let cases: [(&str, Text<'_>, &str); 13] = [
        ("groups", &|| of(&vec![group; 200_000].join(",")), "objects are too many"),
        ("values", &|| of(&vec!["0"; 4 << 20].join(",")), "values are too many"),
        ("objects", &|| of(&vec![r#"{"":0}"#; 2 << 20].join(",")), "objects are too many"),
        ("nesting", &|| "[".repeat(10 << 20), "recursion"),
        ("bytes", &|| format!("{}{}", " ".repeat(20 << 20), of(group)), "bytes"),
        ("pools", &|| source(&vec![r#""10.0.0.0/16""#; 1000].join(",")), "source"),
        ("a long key", &|| of(&format!(r#"{{"{}": 1}}"#, longer())), "a text of"),
        ("a long text", &|| of(&group.replace("udp://127.0.0.1:9", &longer())), "a text of"),
        ("a key", &|| of(&format!(r#"{{"{long}": 1}}"#)), "is not a known key"),
        ("a name", &|| of(&group.replace(r#""g""#, &format!("{long:?}"))), "cannot be a name"),
        ("a target", &|| of(&group.replace("udp://127.0.0.1:9", &long)), "there is no target"),
        (
            "a number",
            &|| of(&group.replace("{}}}", &format!(r#"{{"count": 1{}}}}}}}"#, "0".repeat(400)))),
            "number out of range",
        ),
        ("no number", &|| of(&group.replace("{}}}", r#"{"count": NaN}}}"#)), "not JSON"),
    ];
    for (what, text, word) in cases {
        let (code, said) = validate(text().as_bytes());
        assert_eq!(code, Some(104), "{what}: {}", said.get(..200).unwrap_or(&said));
        assert!(said.contains(word) && said.len() < 8_000, "{what}: {}", said.get(..2000).unwrap_or(&said));
    }
    // Of all children that this process had, the one that took most.
    let most = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss();
    assert!(most < 200 << 10, "{most} KiB");
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for path in [fifo.to_str().unwrap(), "/dev/zero", "/"] {
        let (code, said) = said(netdynod().args(["validate", path]).output().unwrap());
        assert!(
            code == Some(104) && said.contains("ND-104-08") && said.contains("not a regular file"),
            "{said}"
        );
    }
    let endless = std::fs::File::open("/dev/zero").unwrap();
    let (code, said) = said(netdynod().args(["validate", "-"]).stdin(endless).output().unwrap());
    assert!(code == Some(104) && said.contains("bytes"), "{said}");
}

#[test]
fn outputs_that_are_full_or_closed_are_no_panic() {
    let full = || Stdio::from(std::fs::File::options().write(true).open("/dev/full").unwrap());
    let code = |command: &mut Command| command.stdin(Stdio::null()).status().unwrap().code();
    // What is wrong is told by the exit code, when nobody listens.
    assert_eq!(code(netdynod().args(["validate", "/nowhere"]).stderr(full())), Some(104));
    assert_eq!(code(netdynod().arg("reflect").stderr(full())), Some(104));
    assert_eq!(code(netdynod().arg("schema").stdout(full()).stderr(full())), Some(92));
    assert_eq!(
        code(netdynod().args(["validate", "--json", "/nowhere"]).stdout(full()).stderr(full())),
        Some(92)
    );
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    assert_eq!(code(netdynod().arg("--socket").arg(&socket).stdout(full()).stderr(full())), Some(92));
    assert!(!socket.exists());
    let closed = r#""$0" schema >&- 2>&-; echo $?; "$0" validate /nowhere >&- 2>&-; echo $?"#;
    let shell = Command::new("sh").args(["-c", closed, env!("CARGO_BIN_EXE_netdynod")]).output().unwrap();
    assert_eq!(String::from_utf8(shell.stdout).unwrap(), "0\n104\n");
}

#[test]
fn few_descriptors_are_the_environments_fault() {
    let folder = tempfile::tempdir().unwrap();
    for files in 4..9 {
        let script = format!("ulimit -n {files}; exec \"$0\" --socket \"$1\"");
        let socket = folder.path().join(files.to_string());
        let mut child = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_netdynod")])
            .arg(&socket)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        // It serves, or it says why not.
        let mut ready = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready)
            .unwrap();
        if ready.contains("ready") {
            assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
            assert_eq!(child.wait().unwrap().code(), Some(0), "{files} descriptors");
        } else {
            let (code, said) = said(child.wait_with_output().unwrap());
            assert!(code == Some(92) && said.contains("ND-92-11"), "{files} descriptors: {code:?} {said}");
        }
    }
}

#[test]
fn many_interrupts_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = netdynod()
        .arg("--socket")
        .arg(folder.path().join("s"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut ready)
        .unwrap();
    let interrupt =
        format!("i=0; while [ $i -lt 25 ]; do kill -INT {} || exit 0; i=$((i+1)); done", child.id());
    assert!(Command::new("sh").args(["-c", &interrupt]).stderr(Stdio::null()).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!folder.path().join("s").exists());
}
