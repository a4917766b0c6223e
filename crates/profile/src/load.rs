//! From text to a checked profile.

use crate::error::{BAD_VALUE, MISSING_KEY, SYNTAX, UNKNOWN_KEY};
use crate::{Error, Profile};
use protocol::problem::closest;
use serde_json::Value;

/// Profiles larger than this are refused before they are read.
const SIZE_MAX: usize = 16 << 20;

/// Read and check a profile. Bad form gives one error, bad content gives all there are.
pub fn load(text: &str) -> Result<Profile, Vec<Error>> {
    if text.len() > SIZE_MAX {
        return Err(vec![Error::new(
            SYNTAX,
            "",
            format!("the profile has {} bytes; {SIZE_MAX} is the most", text.len()),
            "Split it, or move payloads out of it",
        )]);
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let profile: Profile = serde_path_to_error::deserialize(&mut json)
        .map_err(|e| vec![explain(&e.path().to_string(), e.inner())])?;
    json.end().map_err(|e| vec![explain("", &e)])?;
    let errors = crate::check::check(&profile);
    if errors.is_empty() { Ok(profile) } else { Err(errors) }
}

/// The profile's JSON Schema.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Profile).to_value();
    schema["$id"] = "https://netdyno.dev/schema/profile-1.json".into();
    schema
}

/// serde's words, made into a place, a fault and a remedy.
fn explain(path: &str, error: &serde_json::Error) -> Error {
    let text = error.to_string();
    let (text, place) = match text.rsplit_once(" at line ") {
        Some((what, place)) => (what.to_owned(), format!(" (line {place})")),
        None => (text, String::new()),
    };
    let path = if path == "." { "" } else { path };
    let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    if error.is_syntax() || error.is_eof() {
        return Error::new(
            SYNTAX,
            path,
            format!("not JSON: {text}{place}"),
            "Check commas, quotes and brackets there",
        );
    }
    if text.starts_with("unknown field") || text.starts_with("unknown variant") {
        let (name, known) = quoted.split_first().map_or(("", &[][..]), |(n, k)| (*n, k));
        let fix = match closest(name, known.iter().copied()) {
            Some(near) => format!("Did you mean {near:?}?"),
            None if known.is_empty() => "There are no keys here".to_owned(),
            None => format!("Use one of {}", known.join(", ")),
        };
        let kind = if text.starts_with("unknown field") { "key" } else { "choice" };
        return Error::new(UNKNOWN_KEY, path, format!("{name:?} is not a known {kind}{place}"), fix);
    }
    if let (true, Some(name)) = (text.starts_with("missing field"), quoted.first()) {
        return Error::new(
            MISSING_KEY,
            path,
            format!("the key {name:?} is missing{place}"),
            format!("Add {name:?} there"),
        );
    }
    let (what, fix) = match text.split_once("; ") {
        Some((what, fix)) => (what.to_owned(), capital(fix)),
        None => match text.split_once(", expected ") {
            Some((what, expected)) => (what.to_owned(), format!("Give {expected}")),
            None => (text, String::new()),
        },
    };
    Error::new(BAD_VALUE, path, format!("{what}{place}"), fix)
}

pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}
