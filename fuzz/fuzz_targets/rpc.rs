//! Whatever comes as a line, the daemon reads a request or refuses it, and answers in one line of JSON.
#![no_main]

use serde_json::Value;
use system::rpc::{Error, Request, answer};

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let answer = match Request::parse(line) {
        Ok(request) => answer(&request.id.unwrap_or_default(), Err(Error::method(&request.method))),
        Err((id, error)) => answer(&id, Err(error)),
    };
    assert_eq!(answer.find('\n'), Some(answer.len() - 1));
    assert!(serde_json::from_str::<Value>(&answer).is_ok_and(|a| a["error"]["data"]["fix"].is_string()));
});
