//! How much a JSON text holds, counted before anything is made of it: what a text of a few bytes a value can grow to
//! in memory is not its length.

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Most values in a text. Tables of delays have up to 2^20.
pub const VALUES: usize = 1_200_000;
/// Most objects among them: each takes as much memory as a dozen plain values.
pub const OBJECTS: usize = 150_000;

/// Most bytes of one text in a document: each is copied some times until it stands in an error.
pub const TEXT: usize = 1 << 20;

/// Whether `text` is JSON, and no more of it than can be held. Takes no memory for what it reads. A text with too much
/// fails with serde_json's category `Data`; which has two sentences, divided by a semicolon.
pub fn count(text: &[u8]) -> Result<(), serde_json::Error> {
    check_size(text, usize::MAX)
}

/// The same of a document, of whose texts none has more than [`TEXT`] bytes.
pub(crate) fn document(text: &[u8]) -> Result<(), serde_json::Error> {
    check_size(text, TEXT)
}

fn check_size(text: &[u8], longest: usize) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    Census { values: 0, objects: 0, longest }.deserialize(&mut json)?;
    json.end()
}

struct Census {
    values: usize,
    objects: usize,
    longest: usize,
}

/// A key: nothing but a text.
struct Key(usize);

impl Census {
    fn count_one<E: serde::de::Error>(count: &mut usize, most: usize, what: &str) -> Result<(), E> {
        *count += 1;
        if *count <= most {
            return Ok(());
        }
        Err(E::custom(format_args!(
            "more than {most} {what} are too many to hold; Use fewer, or several files"
        )))
    }
}

impl<'de> DeserializeSeed<'de> for &mut Census {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> DeserializeSeed<'de> for Census {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<(), D::Error> {
        (&mut self).deserialize(deserializer)
    }
}

impl<'de> Visitor<'de> for &mut Census {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Census::count_one(&mut self.values, VALUES, "values")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        short(text, self.longest)?;
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        Census::count_one(&mut self.values, VALUES, "values")?;
        while list.next_element_seed(&mut *self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        Census::count_one(&mut self.values, VALUES, "values")?;
        Census::count_one(&mut self.objects, OBJECTS, "objects")?;
        while object.next_key_seed(Key(self.longest))?.is_some() {
            object.next_value_seed(&mut *self)?;
        }
        Ok(())
    }
}

fn short<E: serde::de::Error>(text: &str, longest: usize) -> Result<(), E> {
    if text.len() <= longest {
        return Ok(());
    }
    let what = format_args!(
        "a text of {} bytes; Use at most {longest}, and a size where more is to be sent",
        text.len()
    );
    Err(E::custom(what))
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        short(text, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let error = count(text.as_bytes()).expect_err("too much");
        assert!(error.is_data(), "{error}");
        error.to_string()
    }

    #[test]
    fn each_limit_just_passes_and_just_fails() {
        let list = |n: usize, of: &str| format!("[{}]", vec![of; n].join(","));
        count(list(VALUES - 1, "0").as_bytes()).expect("at the limit, with the list itself");
        assert!(refused(&list(VALUES, "0")).starts_with("more than 1200000 values"));
        count(list(OBJECTS, "{}").as_bytes()).expect("at the limit");
        assert!(refused(&list(OBJECTS + 1, "{}")).starts_with("more than 150000 objects"));
    }

    #[test]
    fn no_text_of_a_document_is_too_long() {
        for of in [|text: String| format!("[{text:?}]"), |text: String| format!("{{{text:?}: 0}}")] {
            let (fits, long) = (of("x".repeat(TEXT)), of("x".repeat(TEXT + 1)));
            document(fits.as_bytes()).expect("at the limit");
            assert!(
                document(long.as_bytes()).expect_err("too long").to_string().starts_with("a text of 1048577")
            );
            count(long.as_bytes()).expect("no document");
        }
    }

    #[test]
    fn what_is_no_json_is_said_as_before() {
        for text in
            ["", "{", "[1,]", "{} {}", "1e999", r#"{"a":1e999}"#, "\"\u{1}\"", r#""\ud800""#, "[\"\\x\"]"]
        {
            let ours = count(text.as_bytes()).expect_err(text).to_string();
            let theirs = serde_json::from_str::<serde_json::Value>(text).expect_err(text).to_string();
            assert_eq!(ours, theirs, "{text}");
        }
        for open in ["[", r#"{"a":"#] {
            assert!(
                count(open.repeat(1 << 20).as_bytes()).expect_err("deep").to_string().contains("recursion")
            );
        }
    }
}
