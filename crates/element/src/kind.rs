//! What a kind of element is: its options, what they say of it, and how an element is built from them.

use crate::interface_addr::InterfaceAddrs;
use capture::Capture;
use dpdk::Mempool;
use engine::Element;
pub use engine::MakeAffinity;
use profile::Error;
use protocol::problem::Problem;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The options of a kind of element, which know what the kind is called and how an element is built from them. Unknown keys are
/// refused (`deny_unknown_fields`); the type's doc comment is the kind's description.
pub trait ElementKind: DeserializeOwned + Serialize + JsonSchema + Send + Sync + 'static {
    /// The name of the kind.
    const KIND: &'static str;
    /// Its reasons to drop.
    const DROPS: &'static [&'static str];
    /// Whether there may be several of one element, each with a share of the flows. Not of one whose state all packets share.
    const REPLICABLE: bool;
    /// Whether several of one element divide what they keep, so that packets go to who has it: the affinity `owner`.
    const OWNED: bool = false;
    /// Options that work, as JSON: for the reference, and for the tests that every kind must pass.
    const EXAMPLE: &'static str;
    /// Whether other elements may lead to it.
    const TAKES: bool = true;
    /// Whether it works for a run only: it sends or measures the groups of a profile.
    const OF_RUN: bool = false;

    /// What is wrong with the options beside their types. Keys are those of the options.
    fn check(&self) -> Vec<Problem> {
        Vec::new()
    }

    /// What is wrong with so many replicas of it, whose options are right. Keys are those of the options.
    fn check_replicas(&self, count: usize) -> Vec<Problem> {
        let _any_number = count;
        Vec::new()
    }

    /// The names of the outputs, the first one first.
    fn outputs(&self) -> Vec<String> {
        vec!["out".into()]
    }

    /// Ports that the options name: the key, and the port.
    fn ports(&self) -> Vec<(&'static str, &str)> {
        Vec::new()
    }

    /// Files that the options name, read or written: the key, and the name, which may be changed.
    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        Vec::new()
    }

    /// Of an [`OWNED`](ElementKind::OWNED) kind: what says who has what. Asked when all replicas are built.
    fn owner(&self, cx: &mut Build<'_>) -> Result<Option<MakeAffinity>, Error> {
        let _of_no_use = cx;
        Ok(None)
    }

    /// Make the element.
    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error>;
}

/// Options of some kind, checked.
pub trait Settings: Send + Sync {
    /// See [`ElementKind::check_replicas`].
    fn check_replicas(&self, count: usize) -> Vec<Problem>;
    /// See [`ElementKind::outputs`].
    fn outputs(&self) -> Vec<String>;
    /// See [`ElementKind::ports`].
    fn ports(&self) -> Vec<(&'static str, &str)>;
    /// See [`ElementKind::files`].
    fn files(&mut self) -> Vec<(&'static str, &mut String)>;
    /// See [`ElementKind::owner`].
    fn owner(&self, cx: &mut Build<'_>) -> Result<Option<MakeAffinity>, Error>;
    /// See [`ElementKind::build`].
    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error>;
}

impl<K: ElementKind> Settings for K {
    fn check_replicas(&self, count: usize) -> Vec<Problem> {
        ElementKind::check_replicas(self, count)
    }

    fn outputs(&self) -> Vec<String> {
        ElementKind::outputs(self)
    }

    fn ports(&self) -> Vec<(&'static str, &str)> {
        ElementKind::ports(self)
    }

    fn files(&mut self) -> Vec<(&'static str, &mut String)> {
        ElementKind::files(self)
    }

    fn owner(&self, cx: &mut Build<'_>) -> Result<Option<MakeAffinity>, Error> {
        ElementKind::owner(self, cx)
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, Error> {
        ElementKind::build(self, cx)
    }
}

/// A port of the graph, as elements know it.
#[derive(Debug, Clone)]
pub struct GraphPort {
    /// Its name.
    pub name: String,
    /// The addresses that it answers for.
    pub addrs: InterfaceAddrs,
    /// The largest IP packet that its link takes.
    pub mtu: u16,
    /// Number of the kernel's interface that it sits on; 0: none.
    pub interface: u32,
}

/// What there is when an element is built.
pub struct Build<'a> {
    /// The element's name in the graph.
    pub name: &'a str,
    /// Which of its replicas it is.
    pub replica: usize,
    /// How many there are.
    pub replicas: usize,
    /// Packets of its own come from here.
    pub pool: &'a Mempool,
    /// The ports, by number.
    pub ports: &'a [GraphPort],
    /// Files that packets are written to. They end when the graph has.
    pub captures: &'a mut Vec<Capture>,
    /// What kinds of other crates need besides, and what they leave for those who made the graph.
    pub extensions: &'a mut Extensions,
}

/// Values by their type: what only some kinds of elements know of.
#[derive(Debug, Default)]
pub struct Extensions(Vec<Box<dyn Any>>);

impl Extensions {
    /// Add one.
    pub fn insert<T: Any>(&mut self, value: T) {
        self.0.push(Box::new(value));
    }

    /// The one of this type, if there is one.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.iter_mut().find_map(|value| value.downcast_mut())
    }

    /// Take it out.
    pub fn take<T: Any>(&mut self) -> Option<T> {
        let at = self.0.iter().position(|value| value.is::<T>())?;
        self.0.swap_remove(at).downcast().ok().map(|value| *value)
    }
}

/// What elements failed to do when they ended, and what is to be known of it: said when their graph is stopped. Clones are one list.
#[derive(Debug, Clone, Default)]
pub struct Endings(Arc<Mutex<(Vec<Error>, Vec<String>)>>);

impl Endings {
    /// Of the graph that is being built; of one that nobody asks, a list that nobody reads.
    pub fn of(cx: &mut Build<'_>) -> Self {
        cx.extensions.get_mut::<Self>().as_deref().cloned().unwrap_or_default()
    }

    /// Something failed.
    pub fn fault(&self, fault: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.push(fault);
    }

    /// Something is to be known.
    pub fn note(&self, note: String) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.1.contains(&note) {
            all.1.push(note);
        }
    }

    /// All of it, faults and notes.
    pub fn all(&self) -> (Vec<Error>, Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Build<'_> {
    /// The port called `name`, and its number.
    pub fn port(&self, key: &str, name: &str) -> Result<(usize, &GraphPort), Error> {
        let found = self.ports.iter().enumerate().find(|(_, port)| port.name == name);
        found.ok_or_else(|| self.fault(key, &format!("there is no port {name:?}")))
    }

    /// Something that a check should have found before.
    pub fn fault(&self, key: &str, what: &str) -> Error {
        Error::new(
            "ND-104-06",
            format!("elements.{}.{key}", self.name),
            what,
            "See docs/reference/elements.md",
        )
    }
}

/// Options read from where they stand.
type Read = fn(&Value, &str) -> Result<Box<dyn Settings>, Vec<Error>>;

/// A kind, in a list.
#[derive(Clone, Copy)]
pub struct KindEntry {
    /// Its name.
    pub name: &'static str,
    /// Its reasons to drop.
    pub drops: &'static [&'static str],
    /// Whether it may be replicated.
    pub replicable: bool,
    /// Whether its replicas divide what they keep.
    pub owned: bool,
    /// Options that work.
    pub example: &'static str,
    /// Whether other elements may lead to it.
    pub takes: bool,
    /// Whether it works for a run only.
    pub of_run: bool,
    read: Read,
    schema: fn(&mut SchemaGenerator) -> Schema,
}

/// The entry of a kind.
pub const fn kind<K: ElementKind>() -> KindEntry {
    KindEntry {
        name: K::KIND,
        drops: K::DROPS,
        replicable: K::REPLICABLE,
        owned: K::OWNED,
        example: K::EXAMPLE,
        takes: K::TAKES,
        of_run: K::OF_RUN,
        read: read::<K>,
        schema: |generator| K::json_schema(generator),
    }
}

fn read<K: ElementKind>(options: &Value, at: &str) -> Result<Box<dyn Settings>, Vec<Error>> {
    let options: K = profile::read_value(options, at).map_err(|error| vec![error])?;
    let fault = |problem: Problem| {
        let problem = problem.under(at);
        Error::new("ND-104-04", problem.key, problem.what, problem.fix)
    };
    let faults: Vec<Error> = options.check().into_iter().map(fault).collect();
    if faults.is_empty() { Ok(Box::new(options)) } else { Err(faults) }
}

impl KindEntry {
    /// Read options strictly; `at` is where they stand.
    pub fn read(&self, options: &Map<String, Value>, at: &str) -> Result<Box<dyn Settings>, Vec<Error>> {
        (self.read)(&Value::Object(options.clone()), at)
    }

    /// The options' schema.
    pub fn schema(&self, generator: &mut SchemaGenerator) -> Schema {
        (self.schema)(generator)
    }
}

/// Whether an element, an output or a port can be called so.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// Output names from a file, as the engine wants them. They live as long as the process, each list of names once: what there
/// are is what people have written.
pub fn static_names(names: &[String]) -> &'static [&'static str] {
    static KNOWN: Mutex<BTreeMap<Vec<String>, &'static [&'static str]>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(there) = known.get(names) {
        return there;
    }
    let all: Vec<&'static str> = names.iter().map(|name| &*String::leak(name.clone())).collect();
    let all: &'static [&'static str] = Vec::leak(all);
    known.insert(names.to_vec(), all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once() {
        let names = |text: &[&str]| text.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let (first, again) = (static_names(&names(&["a", "b"])), static_names(&names(&["a", "b"])));
        assert!(first == ["a", "b"] && std::ptr::eq(first, again));
        assert!(is_name("a-b_1") && !is_name("") && !is_name("a.b") && !is_name(&"a".repeat(65)));
    }
}
