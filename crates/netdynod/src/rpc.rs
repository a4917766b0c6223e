//! JSON-RPC 2.0: what a line may say, and what is answered.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Longest line taken: a profile with its payloads fits.
pub const LINE_MAX: usize = 32 << 20;

/// A call. Without an `id` it is a notification and gets no answer.
#[derive(Debug, Deserialize)]
pub struct Request {
    /// Must be "2.0".
    #[serde(default)]
    pub jsonrpc: String,
    /// Echoed in the answer.
    #[serde(default)]
    pub id: Option<Value>,
    /// What to do.
    pub method: String,
    /// With what.
    #[serde(default)]
    pub params: Value,
}

/// Not the writer, or another is.
pub const NOT_WRITER: i32 = -32001;
/// The profile is wrong.
pub const BAD_PROFILE: i32 = -32002;
/// Not now.
pub const WRONG_STATE: i32 = -32003;
/// There is none.
pub const NOTHING_THERE: i32 = -32004;
/// The machine is not ready for it.
pub const NOT_READY: i32 = -32005;
/// No or a wrong token.
pub const NOT_ALLOWED: i32 = -32006;

/// Why a call failed.
#[derive(Debug, Clone, Serialize)]
pub struct Error {
    /// JSON-RPC code.
    pub code: i32,
    /// One sentence.
    pub message: String,
    /// `{code, at, what, fix}`: netdyno's own code, where, what, and what to do.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

impl Error {
    /// An error with netdyno's own code.
    pub fn new(code: i32, nd: &str, what: impl Into<String>, fix: &str) -> Self {
        let what = what.into();
        Self { code, data: json!({"code": nd, "at": "", "what": what, "fix": fix}), message: what }
    }

    /// The parameters of a method are wrong.
    pub fn params(e: &serde_json::Error) -> Self {
        let data = json!({"code": "ND-104-10", "at": "params", "what": e.to_string(),
                          "fix": "See docs/reference/rpc.md"});
        Self { code: -32602, message: format!("invalid params: {e}"), data }
    }

    /// Not now.
    pub fn state(what: impl Into<String>, fix: &str) -> Self {
        Self::new(WRONG_STATE, "ND-104-11", what, fix)
    }
}

impl From<traffic::Unready> for Error {
    fn from(e: traffic::Unready) -> Self {
        let code = if e.code.starts_with("ND-104") { BAD_PROFILE } else { NOT_READY };
        Self { code, message: e.to_string(), data: serde_json::to_value(&e).unwrap_or_default() }
    }
}

/// Several at once: the first speaks, all are there.
pub fn bad_profile<E: Serialize + ToString>(code: i32, errors: &[E]) -> Error {
    let mut data = errors.first().map_or(Value::Null, |e| serde_json::to_value(e).unwrap_or_default());
    if let Value::Object(map) = &mut data {
        map.insert("all".into(), serde_json::to_value(errors).unwrap_or_default());
    }
    let more = if errors.len() > 1 { format!(" (and {} more)", errors.len() - 1) } else { String::new() };
    let message = errors.first().map_or_else(String::new, |e| e.to_string() + &more);
    Error { code, message, data }
}

/// The answer to a call.
pub fn answer(id: &Value, result: Result<Value, Error>) -> String {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    }
    .to_string()
}

/// Something the daemon says unasked.
pub fn notification(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string()
}
