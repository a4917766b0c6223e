//! From text to a checked profile.

use crate::bounded::TOO_MANY;
use crate::census::document;
use crate::error::{BAD_VALUE, MISSING_KEY, OUT_OF_RANGE, SYNTAX, UNKNOWN_KEY};
use crate::secret::Secrets;
use crate::text::capital;
use crate::{Error, Profile, Transport};
use protocol::data::Data;
use protocol::problem::closest;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Profiles larger than this are refused before they are read.
const SIZE_MAX: usize = 16 << 20;

/// Read and check a profile. Bad form gives one error, bad content gives all there are.
pub fn load(text: &str) -> Result<Profile, Vec<Error>> {
    load_resolved(text, |_| Ok::<(), Vec<Error>>(()))
}

/// The same of a profile whose files are resolved, or refused, by `resolve` before any of them is opened.
pub fn load_resolved<E: From<Vec<Error>>>(
    text: &str,
    resolve: impl FnOnce(&mut Profile) -> Result<(), E>,
) -> Result<Profile, E> {
    let mut profile = parse(text)?;
    resolve(&mut profile)?;
    Ok(checked(profile)?)
}

/// Read a profile without a look at its content.
fn parse(text: &str) -> Result<Profile, Vec<Error>> {
    if text.len() > SIZE_MAX {
        return Err(vec![Error::new(
            SYNTAX,
            "",
            format!("the profile has {} bytes; {SIZE_MAX} is the most", text.len()),
            "Split it, or move payloads out of it",
        )]);
    }
    document(text.as_bytes()).map_err(|e| vec![explain("", &e)])?;
    if !text.trim_ascii_start().starts_with('{') {
        let fix = "Write {\"name\": …, \"groups\": […]}";
        let what = "a profile is a JSON object, and this is not one";
        return Err(vec![Error::new(BAD_VALUE, "", what, fix)]);
    }
    typed(text).map_err(|error| vec![error])
}

fn checked(mut profile: Profile) -> Result<Profile, Vec<Error>> {
    let mut errors = match &mut profile.transport {
        Transport::Dpdk(dpdk) => dpdk.settle_roles(),
        Transport::Sockets(_) => Vec::new(),
    };
    errors.extend(crate::check::check(&profile));
    if errors.is_empty() {
        return Ok(profile);
    }
    let secrets = Secrets::of(&profile, &Data::default(), []);
    for error in &mut errors {
        error.what = secrets.hide(&error.what);
        error.fix = secrets.hide(&error.fix);
    }
    Err(errors)
}

/// Anything that is written as strictly as a profile; what is wrong is told in the same words.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    document(text.as_bytes()).map_err(|e| explain("", &e))?;
    typed(text)
}

/// The same of a value that stands at `at`.
pub fn read_value<T: DeserializeOwned>(value: &Value, at: &str) -> Result<T, Error> {
    serde_path_to_error::deserialize(value).map_err(|e| {
        let error = explain_value(&e.path().to_string(), e.inner());
        let place = match error.at.as_str() {
            "" => at.to_owned(),
            key if key.starts_with('[') || at.is_empty() => format!("{at}{key}"),
            key => format!("{at}.{key}"),
        };
        Error { at: place, ..error }
    })
}

fn typed<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let mut json = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(&mut json).map_err(|e| explain_value(&e.path().to_string(), e.inner()))
}

/// Text that is not JSON, or too much of it.
fn explain(path: &str, error: &serde_json::Error) -> Error {
    if error.is_data() {
        let text = error.to_string();
        let (what, fix) = text.split_once("; ").unwrap_or((&text, ""));
        let (fix, place) = fix.rsplit_once(" at ").unwrap_or((fix, ""));
        return Error::new(OUT_OF_RANGE, path, format!("{what} ({place})"), fix);
    }
    let what = format!("not JSON: {error}");
    Error::new(SYNTAX, path, what, "Check commas, quotes and brackets there")
}

/// serde's words, made into a place, a fault and a remedy. The text is JSON, so whatever is wrong is a value.
fn explain_value(path: &str, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let (text, place) = match text.rsplit_once(" at line ") {
        Some((what, place)) => (what.to_owned(), format!(" (line {place})")),
        None => (text, String::new()),
    };
    let path = if path == "." { "" } else { path };
    let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    if error.is_syntax() {
        // a choice like {"open": …} with a second key behind the first
        let what = format!("exactly one key is allowed here{place}");
        return Error::new(BAD_VALUE, path, what, "Keep one of them");
    }
    if text.starts_with("unknown field") || text.starts_with("unknown variant") {
        let (name, known) = quoted.split_first().map_or(("", &[][..]), |(n, k)| (*n, k));
        let near = || match closest(name, known.iter().copied()) {
            Some(near) => format!("Did you mean {near:?}?"),
            None if known.is_empty() => "There are no keys here".to_owned(),
            None => format!("Use one of {}", known.join(", ")),
        };
        let fix = foreign_key(path, name).map_or_else(near, str::to_owned);
        let kind = if text.starts_with("unknown field") { "key" } else { "choice" };
        return Error::new(UNKNOWN_KEY, path, format!("{name:?} is not a known {kind}{place}"), fix);
    }
    if let (true, Some(name)) = (text.starts_with("missing field"), quoted.first()) {
        let what = format!("the key {name:?} is missing{place}");
        return Error::new(MISSING_KEY, path, what, format!("Add {name:?} there"));
    }
    if let (true, Some((what, fix))) = (text.starts_with(TOO_MANY), text.split_once("; ")) {
        return Error::new(OUT_OF_RANGE, path, format!("{what}{place}"), capital(fix));
    }
    if let (Some((above, choice)), true) = (path.rsplit_once('.'), text.contains("unit variant")) {
        let what = format!("{choice:?} needs an object with its settings{place}");
        return Error::new(
            BAD_VALUE,
            above,
            what,
            format!("Write {{{choice}: {{}}}}, with its settings inside"),
        );
    }
    if path.starts_with("thresholds[") && text.starts_with("invalid type: string") {
        let what = format!("a text is no threshold in a profile{place}");
        return Error::new(BAD_VALUE, path, what, "Write {metric: GROUP.delay.NAME.p95, max: 200ms}");
    }
    let (what, fix) = if let Some((what, fix)) = text.split_once("; ") {
        (what.to_owned(), capital(fix))
    } else if let Some((what, expected)) = text.split_once(", expected ") {
        (what.to_owned(), format!("Give {}", plain(expected)))
    } else if text.contains("IP address") {
        (text, "Write it like \"10.0.0.1\" or \"fd00::1\"".to_owned())
    } else {
        (text, "See docs/reference/profile.md".to_owned())
    };
    Error::new(BAD_VALUE, path, format!("{what}{place}"), fix)
}

/// What a key of other load generators is called in a group, if this is one.
fn foreign_key(path: &str, name: &str) -> Option<&'static str> {
    let group = path.strip_prefix("groups[")?.split_once("].")?.1;
    match name {
        _ if group != name => None,
        "vus" | "users" | "clients" | "connections" | "concurrency" => Some("Did you mean \"devices\"?"),
        "rate" | "rps" | "cps" => Some("Write load: {open: {rate: 100/s}}, or the interval of the model"),
        _ => None,
    }
}

/// A type's name as people say it.
fn plain(expected: &str) -> String {
    let limit = |bits: u32| format!("a whole number from 0 to {}", u64::MAX >> (64 - bits));
    match expected {
        "u8" => limit(8),
        "u16" => limit(16),
        "u32" => limit(32),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" => "a text in quotes".to_owned(),
        "a sequence" => "a list in [ ]".to_owned(),
        _ if expected.starts_with("struct ") || expected == "a map" => "an object in { }".to_owned(),
        other => other.to_owned(),
    }
}
