//! What of a profile others must not read. The schema marks it; it is replaced in all that is kept, told or logged.

use crate::target::without_user;
use crate::{Profile, Target};
use models::Params;
use protocol::data::Data;
use protocol::problem::Problem;
pub use protocol::redaction::HIDDEN;
use protocol::redaction::{CUT, Redactor, inner, parts};
use protocol::template::Template;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// The key of a mark in the schema. `true`: the text, or all texts below; `"key"`: the same, and it is computed with and never
/// sent; `"names"`: the entries of an object whose
/// names say so, as of header fields; `"query"`: parameters in the query of a URL, as `?token=…`.
const MARK: &str = "x-netdyno-secret";

/// Parts of names of header fields and parameters whose values are secret.
const PARTS: &[&str] = &[
    "auth",
    "token",
    "secret",
    "password",
    "passwd",
    "cookie",
    "credential",
    "session",
    "signature",
    "api-key",
    "api_key",
    "apikey",
    "access-key",
    "access_key",
];

/// Names that are secret as a whole.
const WHOLE: &[&str] = &["key", "sig", "pass", "pwd", "jwt", "code"];

static SCHEMA: LazyLock<Value> = LazyLock::new(crate::schema);

/// The secrets of one profile.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// As they are written, also those that are too short to be looked for.
    values: BTreeSet<String>,
    redactor: Redactor,
}

impl Secrets {
    /// Those of a profile that was read, whose templates are filled from `data`.
    pub fn of(profile: &Profile, data: &Data, more: impl IntoIterator<Item = String>) -> Self {
        let named = profile.targets.values().cloned();
        let written = profile.groups.iter().filter_map(|group| group.target.parse::<Target>().ok());
        let users: Vec<String> = named
            .chain(written)
            .filter_map(|target| target.user)
            .flat_map(|user| user.secrets().collect::<Vec<_>>())
            .collect();
        let whole = serde_json::to_value(profile).unwrap_or_default();
        Self::new(&whole, data, more.into_iter().chain(users))
    }

    /// What the schema's marks say, and `more`, which stands anywhere.
    pub fn new(profile: &Value, data: &Data, more: impl IntoIterator<Item = String>) -> Self {
        let mut values: BTreeSet<String> = more.into_iter().collect();
        let mut found: Vec<Vec<u8>> = values.iter().flat_map(|value| parts(value)).map(Into::into).collect();
        let mut written = Vec::new();
        walk(&SCHEMA, &mut profile.clone(), &mut written);
        for text in written {
            filled(&text, data, &mut found);
            values.insert(text);
        }
        // in a template braces are written twice, on the wire once
        let braces: Vec<&String> = values.iter().filter(|one| one.contains(['{', '}'])).collect();
        for one in braces {
            found.push(one.replace("{{", "{").replace("}}", "}").into());
            found.push(Template::escaped(one).into());
        }
        let columns = data.tables.values().flat_map(|table| &table.columns);
        let secret = columns.filter(|(name, _)| is_named(name));
        found.extend(secret.flat_map(|(_, column)| column.cells().map(<[u8]>::to_vec)));
        values.retain(|value| !value.is_empty() && value != HIDDEN);
        Self { values, redactor: Redactor::new(found) }
    }

    /// The profile as it may be kept.
    pub fn redacted(&self, mut profile: Value) -> Value {
        walk(&SCHEMA, &mut profile, &mut Vec::new());
        // names elsewhere are what results and thresholds refer to
        for group in profile.get_mut("groups").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(model) = group.get_mut("model") {
                self.clean(model);
            }
        }
        profile
    }

    /// A text without them.
    pub fn hide(&self, text: &str) -> String {
        self.redactor.hide(text)
    }

    /// The same of words of others that may have been cut: nor with the beginning of one at its end. Longer than some lines
    /// they are cut here.
    pub fn hide_cut(&self, text: &str) -> String {
        const SHOWN: usize = 300;
        let mut left = self.redactor.hide_cut(text);
        if let Some((end, _)) = left.char_indices().nth(SHOWN) {
            left.truncate(end);
            left.push(CUT);
        }
        left
    }

    fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) if self.values.contains(text) => HIDDEN.clone_into(text),
            Value::String(text) => *text = self.hide(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.clean(item)),
            Value::Object(entries) => entries.values_mut().for_each(|entry| self.clean(entry)),
            _ => {}
        }
    }
}

/// Whether the value of a header field or parameter of this name is secret.
pub fn is_named(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WHOLE.contains(&name.as_str()) || PARTS.iter().any(|part| name.contains(part))
}

/// A URL or path that tells neither credentials nor what is secret in its query.
pub fn query(text: &str) -> String {
    hidden_query(text, &mut Vec::new())
}

/// A problem with the parameters of a model as it may be told: of a secret not what it says.
pub fn without_secrets(model: &Params, problem: Problem) -> Problem {
    let written = serde_json::to_value(model).unwrap_or_default();
    let mut profile = json!({"groups": [{"model": written}]});
    walk(&SCHEMA, &mut profile, &mut Vec::new());
    let hidden = &profile["groups"][0]["model"];
    let key = problem.key.split(['.', '[']).next().unwrap_or_default();
    let entry = problem.key.strip_prefix(key).and_then(|rest| rest.strip_prefix('.'));
    let at = |value: &Value| {
        let value = value[model.name()][key].clone();
        entry.and_then(|entry| value.get(entry).cloned()).unwrap_or(value)
    };
    // only what is said of a template shows a part of it
    if at(&written) == at(hidden) || !problem.what.contains('{') {
        return problem;
    }
    let fix =
        "name it as {env: NAME} or {file: PATH}, which are taken as they are; here {{ and }} are braces";
    Problem::new(problem.key, "cannot be used as it is written, and is not shown", fix)
}

/// Replace what is marked, and put it into `found`.
fn walk(schema: &Value, value: &mut Value, found: &mut Vec<String>) {
    if let Some(to) = schema.get("$ref").and_then(Value::as_str)
        && let Some(node) = SCHEMA.pointer(to.trim_start_matches('#'))
    {
        walk(node, value, found);
    }
    match schema.get(MARK) {
        Some(Value::Bool(true)) => texts(value, &mut |text| Some(take(text, found))),
        Some(Value::String(how)) if how == "key" => texts(value, &mut |text| Some(take(text, found))),
        Some(Value::String(how)) if how == "names" => {
            for (_, entry) in value.as_object_mut().into_iter().flatten().filter(|(name, _)| is_named(name)) {
                texts(entry, &mut |text| Some(take(text, found)));
            }
        }
        Some(_) => texts(value, &mut |text| {
            let hidden = hidden_query(text, found);
            (hidden != text).then_some(hidden)
        }),
        None => {}
    }
    for choice in ["anyOf", "oneOf", "allOf"] {
        for option in schema.get(choice).and_then(Value::as_array).into_iter().flatten() {
            walk(option, value, found);
        }
    }
    match value {
        Value::Array(items) => {
            if let Some(node) = schema.get("items") {
                items.iter_mut().for_each(|item| walk(node, item, found));
            }
        }
        Value::Object(entries) => {
            for (key, entry) in entries {
                let known = schema.get("properties").and_then(|all| all.get(key));
                if let Some(node) = known.or_else(|| schema.get("additionalProperties")) {
                    walk(node, entry, found);
                }
            }
        }
        _ => {}
    }
}

/// What a secret text, which may be a template, becomes when it is sent, with its parts.
fn filled(text: &str, data: &Data, found: &mut Vec<Vec<u8>>) {
    // values that are captured are not known here, and what captures them hides them
    let captured = text.split('{').filter_map(|place| place.strip_prefix("response.")?.split_once('}'));
    let captured = captured.map(|(name, _)| name.to_owned()).collect();
    let data = Data { captured, ..data.clone() };
    let template = |text: &str| Template::with(text, "", Some(&data)).or_else(|_| Template::parse(text, ""));
    for one in [text].into_iter().chain(inner(text)) {
        let Ok(made) = template(one) else {
            found.extend(parts(one).into_iter().map(Into::into));
            continue;
        };
        // the form around places, as `Bearer ` and `session=`, tells nothing: what it is around comes by itself
        if made.fixed().is_none() && !inner(one).is_empty() {
            continue;
        }
        made.texts(&mut |bytes| {
            let more = std::str::from_utf8(bytes).map(parts).unwrap_or_default();
            found.push(bytes.to_vec());
            found.extend(more.into_iter().map(Into::into));
        });
    }
}

fn take(text: &str, found: &mut Vec<String>) -> String {
    found.push(text.to_owned());
    HIDDEN.to_owned()
}

/// Every text in `value`, which `change` may replace.
fn texts(value: &mut Value, change: &mut dyn FnMut(&str) -> Option<String>) {
    match value {
        Value::String(text) => {
            if let Some(other) = change(text) {
                *text = other;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| texts(item, change)),
        Value::Object(entries) => entries.values_mut().for_each(|entry| texts(entry, change)),
        _ => {}
    }
}

fn hidden_query(text: &str, found: &mut Vec<String>) -> String {
    let url = text.contains("://").then(|| without_user(text));
    if let Some(url) = url.as_ref().filter(|url| *url != text) {
        match text.parse::<Target>().ok().and_then(|target| target.user) {
            Some(user) => found.extend(user.secrets()),
            // not a URL that can be used: whatever it was, it is in none of its parts
            None => found.push(text.to_owned()),
        }
        return hidden_query(url, found);
    }
    let Some((before, rest)) = text.split_once('?') else {
        return text.to_owned();
    };
    let shown = rest.split('&').map(|parameter| match parameter.split_once('=') {
        Some((name, value)) if is_named(name) && !value.is_empty() => {
            format!("{name}={}", take(value, found))
        }
        _ => parameter.to_owned(),
    });
    format!("{before}?{}", shown.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::data::{Column, Table};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn profile() -> Value {
        json!({
            "name": "p",
            "targets": {"web": "http://10.0.0.1/a?token=tok-5678&page=2"},
            "groups": [
                {"name": "pass-1234", "target": "mqtt://10.0.0.1", "model": {"mqtt": {
                    "username": "user", "password": "pass-1234", "topic": "a/pass-1234/b"
                }}},
                {"name": "h", "target": "http://10.0.0.1/?sig=abcd", "model": {"http": {
                    "path": "/x?api_key=key-9876&q=1",
                    "headers": {"Authorization": "Bearer abcdef", "Accept": "text/html", "X-Api-Key": "k"},
                    "body": "late-secret"
                }}},
            ]
        })
    }

    #[test]
    fn what_is_marked_is_replaced_and_nothing_else() {
        let secrets = Secrets::new(&profile(), &Data::default(), ["late-secret".to_owned()]);
        let kept = secrets.redacted(profile());
        let text = kept.to_string();
        for secret in ["tok-5678", "abcd", "key-9876", "Bearer", "late-secret"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        assert_eq!(text.matches("pass-1234").count(), 1, "but for the name of the group");
        let group = |i: usize, key: &str| kept["groups"][i]["model"].pointer(key).cloned();
        assert_eq!(group(0, "/mqtt/username"), Some("user".into()));
        assert_eq!(group(0, "/mqtt/topic"), Some("a/***/b".into()));
        assert_eq!(group(1, "/http/path"), Some("/x?api_key=***&q=1".into()));
        assert_eq!(group(1, "/http/headers/Accept"), Some("text/html".into()));
        assert_eq!(group(1, "/http/headers/X-Api-Key"), Some(HIDDEN.into()));
        assert_eq!(group(1, "/http/body"), Some(HIDDEN.into()));
        assert_eq!(kept["targets"]["web"], "http://10.0.0.1/a?token=***&page=2");
        assert_eq!(kept["name"], "p");
    }

    #[test]
    fn a_profile_without_secrets_is_kept_as_it_is() {
        let plain = json!({"name": "p", "groups": [{"name": "g", "target": "ping://10.0.0.1", "model": {"ping": {}}}]});
        assert_eq!(Secrets::new(&plain, &Data::default(), []).redacted(plain.clone()), plain);
    }

    #[test]
    fn texts_of_others_are_cleaned_of_them() {
        let secrets = Secrets::new(&profile(), &Data::default(), []);
        let said = "the broker says: pass-1234 of Bearer abcdef is wrong, k too".to_owned();
        assert_eq!(secrets.hide(&said), "the broker says: *** of *** is wrong, k too");
    }

    #[test]
    fn words_that_were_cut_tell_no_beginning_of_a_secret() {
        let secrets = Secrets::new(&Value::Null, &Data::default(), ["Bearer abcdefgh".to_owned()]);
        assert_eq!(secrets.hide_cut("wrong: Bearer abcd"), "wrong: ***");
        assert_eq!(secrets.hide_cut("wrong: Bea"), "wrong: Bea");
        assert_eq!(secrets.hide_cut("wrong: Bearer abcdefgh, no"), "wrong: ***, no");
        let long = secrets.hide_cut(&format!("{}Bearer abcdefgh", "ä".repeat(295)));
        assert_eq!(long, format!("{}***", "ä".repeat(295)));
        assert_eq!(secrets.hide_cut(&"ä".repeat(400)), format!("{}…", "ä".repeat(300)));
    }

    #[test]
    fn one_that_holds_another_goes_whole() {
        let secrets =
            Secrets::new(&Value::Null, &Data::default(), ["abcd".to_owned(), "abcdefgh".to_owned()]);
        assert_eq!(secrets.hide("abcdefgh abcd"), "*** ***");
    }

    #[test]
    fn what_fills_a_secret_template_is_secret_and_its_form_is_not() {
        let mut pin = Column::default();
        assert!(["1234", "12", "p%40ss"].iter().all(|cell| pin.push(cell.as_bytes())));
        let columns = BTreeMap::from([("pin".to_owned(), Arc::new(pin))]);
        let table = Table { columns, ..Table::default() };
        let data =
            Data { tables: Arc::new(BTreeMap::from([("users".to_owned(), table)])), ..Data::default() };
        let http = json!({"path": "/?token=x{users.pin}yz", "headers": {
            "Authorization": "Bearer tok-{device}-{users.pin}", "Cookie": "theme=dark-1; session={users.pin}{{b}}{response.a}"
        }});
        let profile =
            json!({"name": "p", "groups": [{"name": "g", "target": "http://h", "model": {"http": http}}]});
        let secrets = Secrets::new(&profile, &data, []);
        for (said, shown) in [
            ("no /?token=x1234yz", "no /?token=***"),
            ("no /?token=x12yz", "no /?token=***"),
            ("no 1234, 12", "no ***, 12"),
            ("no xp@ssyz or p%40ss", "no *** or ***"),
            ("no bearer session= theme=", "no bearer session= theme="),
            ("no dark-1 tok-7-1234", "no *** ***7-***"),
        ] {
            assert_eq!(secrets.hide(said), shown, "{said}");
        }
    }

    #[test]
    fn names_say_what_is_secret() {
        for name in
            ["Authorization", "proxy-authorization", "Cookie", "X-API-Key", "access_token", "key", "sig"]
        {
            assert!(is_named(name), "{name}");
        }
        for name in ["Accept", "User-Agent", "Content-Type", "page", "keyboard", "design"] {
            assert!(!is_named(name), "{name}");
        }
    }

    #[test]
    fn a_query_tells_no_secret() {
        assert_eq!(query("http://h/a?b=1&token=x"), "http://h/a?b=1&token=***");
        assert_eq!(query("/plain"), "/plain");
        assert_eq!(query("/a?token"), "/a?token");
        assert_eq!(query("/a?token="), "/a?token=");
    }
}
