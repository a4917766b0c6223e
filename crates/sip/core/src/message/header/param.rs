use super::super::lex::Cursor;
use super::{escape, is_token, text};
use std::fmt;

/// A parameter of a header field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Value; a quoted string as written between its quotes.
    pub value: Option<String>,
    /// The value is a quoted string.
    pub quoted: bool,
}

/// Parameters of a header field, in order: `;name=value`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Params(pub Vec<Param>);

impl Params {
    pub(super) fn read(read: &mut Cursor<'_>) -> Option<Self> {
        let mut params = Vec::new();
        while read.separator(b';') {
            let found = read.parameter()?;
            params.push(Param { name: text(found.name), value: found.value.map(text), quoted: found.quoted });
        }
        Some(Self(params))
    }

    /// The first parameter of this name, in any case.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.0.iter().find(|param| param.name.eq_ignore_ascii_case(name))
    }

    /// Value of the first parameter of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.param(name)?.value.as_deref()
    }

    /// Whether there is a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.param(name).is_some()
    }

    /// How many parameters have this name.
    pub fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|param| param.name.eq_ignore_ascii_case(name)).count()
    }

    /// Sets a parameter, quoted where its value is no token, host or address.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        self.0.retain(|param| !param.name.eq_ignore_ascii_case(name));
        let quoted = value.is_some_and(|v| !is_token(v) && v.bytes().any(|b| !is_host(b)) || v.is_empty());
        let value = value.map(|v| if quoted { escape(v) } else { v.to_owned() });
        self.0.push(Param { name: name.to_owned(), value, quoted });
    }
}

fn is_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"[]:.-".contains(&byte)
}

impl fmt::Display for Params {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|Param { name, value, quoted }| match value {
            None => write!(f, ";{name}"),
            Some(value) if *quoted => write!(f, ";{name}=\"{value}\""),
            Some(value) => write!(f, ";{name}={value}"),
        })
    }
}
