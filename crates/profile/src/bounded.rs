//! Lists that are refused when they are too long, before they are held.

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// How [`list`] and [`map`] begin to say no.
pub(crate) const TOO_MANY: &str = "more than ";

fn too_many<E: Error>(most: usize) -> E {
    E::custom(format_args!("{TOO_MANY}{most} entries are more than can be used; use at most {most}"))
}

/// A list of at most `MOST` entries, for `deserialize_with`.
pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct List<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a sequence")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while all.len() < MOST {
                match list.next_element()? {
                    Some(one) => all.push(one),
                    None => return Ok(all),
                }
            }
            list.next_element::<IgnoredAny>()?.map_or(Ok(all), |_| Err(too_many(MOST)))
        }
    }

    deserializer.deserialize_seq(List::<T, MOST>(PhantomData))
}

/// Names with at most `MOST` values, for `deserialize_with`.
pub fn map<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    struct Map<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Map<T, MOST> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BTreeMap<String, T>, A::Error> {
            let mut all = BTreeMap::new();
            while let Some(name) = map.next_key()? {
                if all.len() == MOST {
                    return Err(too_many(MOST));
                }
                all.insert(name, map.next_value()?);
            }
            Ok(all)
        }
    }

    deserializer.deserialize_map(Map::<T, MOST>(PhantomData))
}
