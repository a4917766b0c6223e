//! JSON-RPC 2.0: what a line may say, and what is answered. docs/reference/rpc.md has it in words.

use run::SetupError;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A call.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Echoed in the answer. Without one it is a notification, and is not answered.
    pub id: Option<Value>,
    /// What to do.
    pub method: String,
    /// With what, by name.
    pub params: Map<String, Value>,
}

impl Request {
    /// Read a line. A refusal comes with the id to answer to.
    pub fn parse(line: &[u8]) -> Result<Self, (Value, Error)> {
        let refuse = |code, id: &Value, what: String, fix| (id.clone(), Error::request(code, what, fix));
        // Counted before it is held: a few bytes can be an object each.
        profile::count_json(line).map_err(|e| {
            let text = e.to_string();
            match text.split_once("; ") {
                Some((what, _)) if e.is_data() => {
                    refuse(NO_REQUEST, &Value::Null, what.to_owned(), "Use fewer, or several requests")
                }
                _ => refuse(NO_JSON, &Value::Null, format!("not JSON: {text}"), LINE),
            }
        })?;
        let value = serde_json::from_slice(line)
            .map_err(|e| refuse(NO_JSON, &Value::Null, format!("not JSON: {e}"), LINE))?;
        let Value::Object(mut fields) = value else {
            let fix = "Send each request as an object on a line of its own; batches are not taken";
            return Err(refuse(NO_REQUEST, &Value::Null, format!("a request is no {}", kind(&value)), fix));
        };
        let id = fields.remove("id");
        let to = id.clone().unwrap_or_default();
        if matches!(to, Value::Bool(_) | Value::Array(_) | Value::Object(_)) {
            let what = format!("the id is a {}", kind(&to));
            return Err(refuse(NO_REQUEST, &Value::Null, what, "Use a number or a text"));
        }
        if fields.get("jsonrpc") != Some(&Value::from("2.0")) {
            let fix = "Send \"jsonrpc\": \"2.0\" with each request";
            return Err(refuse(NO_REQUEST, &to, "this is not JSON-RPC 2.0".into(), fix));
        }
        let method = match fields.remove("method") {
            Some(Value::String(method)) if method.len() <= METHOD_MAX => method,
            _ => {
                let what = format!("the method is missing, or no text of at most {METHOD_MAX} bytes");
                return Err(refuse(NO_REQUEST, &to, what, METHODS));
            }
        };
        match fields.remove("params").unwrap_or_default() {
            Value::Null => Ok(Self { id, method, params: Map::new() }),
            Value::Object(params) => Ok(Self { id, method, params }),
            other => {
                let what = format!("params are a {}", kind(&other));
                Err(refuse(BAD_PARAMS, &to, what, "Give parameters by name, in an object"))
            }
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// Longest name of a method: names are logged and echoed.
const METHOD_MAX: usize = 100;
const LINE: &str = "Send one JSON object a line, in UTF-8";
const METHODS: &str = "See docs/reference/rpc.md for the methods";

/// JSON-RPC's own: not JSON.
pub const NO_JSON: i32 = -32700;
/// JSON-RPC's own: JSON, but no request.
pub const NO_REQUEST: i32 = -32600;
/// JSON-RPC's own: no such method.
pub const NO_METHOD: i32 = -32601;
/// JSON-RPC's own: wrong parameters.
pub const BAD_PARAMS: i32 = -32602;
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
/// Too many connections or subscriptions.
pub const TOO_MANY: i32 = -32007;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Error {
    /// JSON-RPC code.
    pub code: i32,
    /// One sentence.
    pub message: String,
    /// `{code, at, what, fix}`: netdyno's own code, where, what, and what to do.
    pub data: Value,
}

impl Error {
    /// An error with netdyno's own code.
    pub fn new(code: i32, nd: &str, at: &str, what: impl Into<String>, fix: &str) -> Self {
        Self::of(code, &json!({"code": nd, "at": at, "what": what.into(), "fix": fix}))
    }

    /// From an error that has its own code, place, words and remedy.
    pub fn of(code: i32, error: &impl Serialize) -> Self {
        let data = json!(error);
        Self { code, message: data["what"].as_str().unwrap_or_default().to_owned(), data }
    }

    /// What came is no call that could be made.
    pub fn request(code: i32, what: impl Into<String>, fix: &str) -> Self {
        Self::new(code, "ND-104-28", "request", what, fix)
    }

    /// There is no such method.
    pub fn method(name: &str) -> Self {
        Self::new(NO_METHOD, "ND-104-28", "method", format!("there is no method {name:?}"), METHODS)
    }

    /// The parameters of a method are wrong.
    pub fn params(at: &str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self::new(
            BAD_PARAMS,
            "ND-104-10",
            at,
            profile::printable(&what),
            "See docs/reference/rpc.md for the method's parameters",
        )
    }

    /// Not now.
    pub fn state(what: impl Into<String>, fix: &str) -> Self {
        Self::new(WRONG_STATE, "ND-104-11", "", what, fix)
    }

    /// Several things at once: the first speaks, all are there.
    pub fn all<E: Serialize>(code: i32, errors: &[E]) -> Self {
        let mut error = Self::of(code, &errors.first());
        if errors.len() > 1 {
            error.message += &format!(" (and {} more)", errors.len() - 1);
        }
        if let Value::Object(data) = &mut error.data {
            data.insert("all".into(), json!(errors));
        }
        error
    }
}

impl From<SetupError> for Error {
    fn from(e: SetupError) -> Self {
        let code = if e.code.starts_with("ND-104") { BAD_PROFILE } else { NOT_READY };
        Self::of(code, &e)
    }
}

/// What a method answers.
pub type Answer = Result<Value, Error>;

/// The line that answers a call.
pub fn answer(id: &Value, result: Answer) -> String {
    line(&match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    })
}

/// The line that tells something unasked.
pub fn notification(method: &str, params: &impl Serialize) -> String {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

fn line(value: &Value) -> String {
    let mut text = value.to_string();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(line: &str) -> (Value, i32) {
        let (id, error) = Request::parse(line.as_bytes()).unwrap_err();
        for key in ["code", "at", "what", "fix"] {
            assert!(
                error.data[key].as_str().is_some_and(|text| !text.is_empty()),
                "{line}: {key} in {error:?}"
            );
        }
        assert_eq!(error.data["what"], Value::from(error.message.clone()));
        (id, error.code)
    }

    #[test]
    fn a_request_is_read() {
        let read = |line: &str| Request::parse(line.as_bytes()).unwrap();
        let request = read(r#" {"jsonrpc": "2.0", "id": "a", "method": "m", "params": {"k": [1]}} "#);
        assert_eq!((request.id, request.method.as_str()), (Some("a".into()), "m"));
        assert_eq!(Value::from(request.params), json!({"k": [1]}));
        // without parameters, without an id, with one that is null
        let request = read(r#"{"jsonrpc": "2.0", "method": "m", "params": null}"#);
        assert_eq!((request.id, request.params.len()), (None, 0));
        let request = read(r#"{"jsonrpc": "2.0", "id": null, "method": "m"}"#);
        assert_eq!((request.id, request.params.len()), (Some(Value::Null), 0));
    }

    #[test]
    fn what_is_no_request_is_refused_with_the_id_it_has() {
        for (line, code, id) in [
            ("", NO_JSON, Value::Null),
            ("{", NO_JSON, Value::Null),
            ("{} {}", NO_JSON, Value::Null),
            (r#"{"id": 1e999}"#, NO_JSON, Value::Null),
            ("7", NO_REQUEST, Value::Null),
            ("{}", NO_REQUEST, Value::Null),
            // neither a batch nor a request by position
            (r#"[{"jsonrpc": "2.0", "id": 1, "method": "m"}]"#, NO_REQUEST, Value::Null),
            (r#"["2.0", 1, "m", {}]"#, NO_REQUEST, Value::Null),
            (r#"{"jsonrpc": "2.0", "id": {}, "method": "m"}"#, NO_REQUEST, Value::Null),
            (r#"{"jsonrpc": "2.0", "id": true, "method": "m"}"#, NO_REQUEST, Value::Null),
            (r#"{"id": 1, "method": "m"}"#, NO_REQUEST, 1.into()),
            (r#"{"jsonrpc": 2.0, "id": 1, "method": "m"}"#, NO_REQUEST, 1.into()),
            (r#"{"jsonrpc": "1.0", "id": "x", "method": "m"}"#, NO_REQUEST, "x".into()),
            (r#"{"jsonrpc": "2.0", "id": 1}"#, NO_REQUEST, 1.into()),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": 5}"#, NO_REQUEST, 1.into()),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": "m", "params": [1]}"#, BAD_PARAMS, 1.into()),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": "m", "params": "x"}"#, BAD_PARAMS, 1.into()),
        ] {
            assert_eq!(refused(line), (id, code), "{line}");
        }
    }

    #[test]
    fn the_name_of_a_method_has_its_limit() {
        let line = |len| json!({"jsonrpc": "2.0", "id": 1, "method": "m".repeat(len)}).to_string();
        assert_eq!(Request::parse(line(METHOD_MAX).as_bytes()).unwrap().method.len(), METHOD_MAX);
        assert_eq!(refused(&line(METHOD_MAX + 1)), (1.into(), NO_REQUEST));
    }

    #[test]
    fn nesting_without_end_is_refused_not_followed() {
        for open in ["[", r#"{"a":"#] {
            assert_eq!(refused(&open.repeat(1 << 20)), (Value::Null, NO_JSON));
        }
    }

    #[test]
    fn more_than_can_be_held_is_refused_before_it_is_held() {
        let bomb = format!(
            r#"{{"jsonrpc": "2.0", "id": 1, "method": "m", "params": {{"a": [{}]}}}}"#,
            vec![r#"{"":0}"#; 200_000].join(",")
        );
        assert_eq!(refused(&bomb), (Value::Null, NO_REQUEST));
    }

    #[test]
    fn of_several_errors_the_first_speaks_and_all_are_there() {
        let one = |n: u32| json!({"code": "ND-104-05", "at": format!("a[{n}]"), "what": format!("{n}"), "fix": "f"});
        let error = Error::all(BAD_PROFILE, &[one(1), one(2), one(3)]);
        assert_eq!((error.message.as_str(), &error.data["at"]), ("1 (and 2 more)", &json!("a[1]")));
        assert_eq!(error.data["all"], json!([one(1), one(2), one(3)]));
        let error = Error::all(BAD_PROFILE, &[one(1)]);
        assert_eq!((error.message.as_str(), &error.data["all"]), ("1", &json!([one(1)])));
    }

    #[test]
    fn an_answer_is_one_line_whatever_is_in_it() {
        let text = answer(&json!("a\nb"), Err(Error::method("x\ny")));
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.ends_with('\n'));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _either = Request::parse(&line);
        }

        #[test]
        fn any_json_is_read_or_refused_with_its_id(id in 0u32.., version in ".*", method in ".*", params in ".*") {
            let line = json!({"jsonrpc": version, "id": id, "method": method, "params": params}).to_string();
            // the params are a text: never a request
            let (to, _) = Request::parse(line.as_bytes()).unwrap_err();
            prop_assert_eq!(to, json!(id));
        }
    }
}
