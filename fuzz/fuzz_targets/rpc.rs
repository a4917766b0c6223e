//! Whatever comes as a line, the daemon reads a request or refuses it, and answers in one line of JSON.
#![no_main]

#[allow(dead_code)] // the daemon is a program, no library: its file is taken as it is
#[path = "../../crates/netdynod/src/rpc.rs"]
mod rpc;

use rpc::{Error, Request, answer};
use serde_json::Value;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let answer = match Request::parse(line) {
        Ok(request) => answer(&request.id.unwrap_or_default(), Err(Error::method(&request.method))),
        Err((id, error)) => answer(&id, Err(error)),
    };
    assert_eq!(answer.find('\n'), Some(answer.len() - 1));
    assert!(serde_json::from_str::<Value>(&answer).is_ok_and(|a| a["error"]["data"]["fix"].is_string()));
});
