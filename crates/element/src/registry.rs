//! The kinds of elements that a graph can be made of, by name.
//!
//! A kind is a type of options that implements [`ElementKind`](crate::kind::ElementKind), in the file of its element, and one
//! line in [`KINDS`], or in the list of another crate that brings elements of its own. Whoever runs graphs puts the lists
//! together in a [`Registry`].

use crate::kind::{KindEntry, kind};
use std::fmt;

/// The kinds of this crate.
pub const KINDS: &[KindEntry] = &[
    kind::<crate::parse::Options>(),
    kind::<crate::classify::Options>(),
    kind::<crate::police::Options>(),
    kind::<crate::vlan::Options>(),
    kind::<crate::tee::Options>(),
    kind::<crate::sample::Options>(),
    kind::<crate::pcapng::Options>(),
    kind::<crate::balance::Options>(),
    kind::<crate::distribute::Options>(),
    kind::<crate::l2fwd::Options>(),
    kind::<crate::reflect::Options>(),
    kind::<crate::arp_nd::Options>(),
    kind::<crate::counter::Options>(),
    kind::<crate::discard::Options>(),
];

/// All kinds that can be named.
#[derive(Clone, Default)]
pub struct Registry(Vec<KindEntry>);

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds().map(|kind| kind.name)).finish()
    }
}

impl Registry {
    /// Of these lists.
    pub fn new(lists: &[&[KindEntry]]) -> Self {
        Self(lists.concat())
    }

    /// With the kinds of one more list.
    #[must_use]
    pub fn with(mut self, list: &[KindEntry]) -> Self {
        self.0.extend_from_slice(list);
        self
    }

    /// The kind of this name.
    pub fn find(&self, name: &str) -> Option<&KindEntry> {
        self.0.iter().find(|kind| kind.name == name)
    }

    /// All of them, in the order of the lists.
    pub fn kinds(&self) -> impl Iterator<Item = &KindEntry> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::is_name;
    use schemars::SchemaGenerator;
    use serde_json::{Map, Value};
    use std::collections::BTreeSet;

    #[test]
    fn each_kind_has_a_name_and_an_example_that_is_right() {
        let registry = Registry::new(&[KINDS]);
        let names: BTreeSet<_> = registry.kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), KINDS.len(), "a name is used twice");
        let mut generator = SchemaGenerator::default();
        for kind in registry.kinds() {
            let example: Map<String, Value> = serde_json::from_str(kind.example).expect(kind.name);
            let settings = kind.read(&example, "elements.x").map_err(|why| why[0].to_string());
            let settings = settings.unwrap_or_else(|why| panic!("{}: {why}", kind.name));
            let outputs = settings.outputs();
            assert!(outputs.iter().all(|output| is_name(output)), "{}: {outputs:?}", kind.name);
            assert!(kind.drops.len() <= 60, "{}", kind.name);
            let schema = kind.schema(&mut generator).to_value();
            assert!(schema["description"].as_str().is_some_and(|about| !about.is_empty()), "{}", kind.name);
        }
        assert!(registry.find("classifier").is_some() && registry.find("classifer").is_none());
    }

    #[test]
    fn a_wrong_option_is_named_by_its_path() {
        let kind = Registry::new(&[KINDS]);
        let kind = kind.find("classifier").expect("it is there");
        let read = |text: &str| {
            let options = serde_json::from_str(text).expect("JSON");
            let faults = kind.read(&options, "elements.acl").err().expect(text);
            faults.into_iter().map(|fault| (fault.code, fault.at)).collect::<Vec<_>>()
        };
        let wrong = |code, at: &str| vec![(code, at.to_owned())];
        assert_eq!(read(r#"{"ruls": []}"#), wrong("ND-104-02", "elements.acl.ruls"));
        assert_eq!(read("{}"), wrong("ND-104-03", "elements.acl"));
        assert_eq!(read(r#"{"rules": 5}"#), wrong("ND-104-04", "elements.acl.rules"));
        let two = r#"{"rules": [{"match": "tpc", "to": "a"}, {"match": "src 1", "to": "a"}]}"#;
        let both = ["elements.acl.rules[0].match", "elements.acl.rules[1].match"];
        assert_eq!(read(two), both.map(|at| ("ND-104-04", at.to_owned())));
    }
}
