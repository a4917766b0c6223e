use super::*;
use proptest::prelude::*;

fn refused(line: &str) -> (Value, i32) {
    let (id, error) = Request::parse(line.as_bytes()).unwrap_err();
    for key in ["code", "at", "what", "fix"] {
        assert!(error.data[key].as_str().is_some_and(|text| !text.is_empty()), "{line}: {key} in {error:?}");
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
fn of_several_errors_the_first_speaks_and_all_are_there() {
    let one =
        |n: u32| json!({"code": "ND-104-05", "at": format!("a[{n}]"), "what": format!("{n}"), "fix": "f"});
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
