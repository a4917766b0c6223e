//! What a system brings to the daemon: kinds of packet elements, RPC methods, transports of runs, commands.
//!
//! The program's `main` makes one [`Registry`] and lets each system register. The platform looks up in it what a graph, a call or
//! a profile names, when it is read or assembled; nothing of it is on the way of a packet.

pub mod command;
pub mod method;
pub mod rpc;
pub mod serving;
pub mod signals;
pub mod standard_input;
pub mod transport;

use command::Command;
use element::kind::KindEntry;
use element::registry::Registry as Kinds;
use method::Method;
use profile::Profile;
use run::SetupError;
use std::collections::BTreeMap;
use transport::{BoxedTransport, OpenTransport};

/// All that systems registered.
#[derive(Default)]
pub struct Registry {
    kinds: Kinds,
    methods: BTreeMap<&'static str, Method>,
    transports: Vec<(&'static str, OpenTransport)>,
    commands: Vec<Command>,
}

impl Registry {
    /// Kinds of elements for graphs.
    pub fn add_kinds(&mut self, kinds: &[KindEntry]) {
        for kind in kinds {
            debug_assert!(self.kinds.find(kind.name).is_none(), "two kinds are called {}", kind.name);
        }
        self.kinds = std::mem::take(&mut self.kinds).with(kinds);
    }

    /// RPC methods.
    pub fn add_methods(&mut self, methods: impl IntoIterator<Item = Method>) {
        for method in methods {
            let before = self.methods.insert(method.name(), method);
            debug_assert!(before.is_none(), "two methods have one name");
        }
    }

    /// A transport of runs. Results and `core.describe` call it `name`.
    pub fn add_transport(&mut self, name: &'static str, open: OpenTransport) {
        debug_assert!(self.transports().all(|other| other != name), "two transports are called {name}");
        self.transports.push((name, open));
    }

    /// Commands of the program.
    pub fn add_commands(&mut self, commands: impl IntoIterator<Item = Command>) {
        for command in commands {
            debug_assert!(self.command(command.name).is_none(), "two commands are called {}", command.name);
            self.commands.push(command);
        }
    }

    /// The kinds of elements.
    pub fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    /// The method of this name.
    pub fn method(&self, name: &str) -> Option<&Method> {
        self.methods.get(name)
    }

    /// The names of the methods.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> {
        self.methods.keys().copied()
    }

    /// The commands.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// The command of this name.
    pub fn command(&self, name: &str) -> Option<&Command> {
        self.commands.iter().find(|command| command.name == name)
    }

    /// The names of the transports.
    pub fn transports(&self) -> impl Iterator<Item = &'static str> {
        self.transports.iter().map(|(name, _)| *name)
    }

    /// The transport that a profile chooses, with its name, ready to start.
    pub fn transport(&self, profile: &Profile) -> Result<(&'static str, BoxedTransport), SetupError> {
        let chosen = |(name, open): &(&'static str, OpenTransport)| Some((*name, open(profile, self)?));
        let (name, opened) = self.transports.iter().find_map(chosen).ok_or_else(|| {
            let what = "this program does not have the profile's transport";
            SetupError::new("ND-104-06", "transport", what, "Use one of `transports` of core.describe")
        })?;
        Ok((name, opened?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::method::CallContext;
    use crate::rpc::{Answer, BAD_PARAMS, Error};
    use profile::graph::GraphFile;
    use serde_json::{Map, Value, json};

    struct Context;

    impl CallContext for Context {
        fn may_change(&self) -> Result<(), Error> {
            Err(Error::state("only read here", "Ask another"))
        }

        fn is_ending(&self) -> bool {
            false
        }

        fn graph(&self, id: &str) -> Result<engine::View, Error> {
            Err(Error::params("params.graph", format!("there is no graph {id:?}")))
        }

        fn change_graph(
            &self,
            _: &str,
            _: &Value,
            _: &mut dyn FnMut(&GraphFile, &GraphFile) -> Answer,
        ) -> Answer {
            self.may_change().map(|()| Value::Null)
        }
    }

    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sum {
        terms: Vec<i64>,
    }

    fn sum(_: &dyn CallContext, params: Sum) -> Answer {
        Ok(json!(params.terms.iter().sum::<i64>()))
    }

    fn params(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).expect("an object")
    }

    #[test]
    fn a_method_is_found_by_its_name_and_takes_its_parameters_apart() {
        let mut registry = Registry::default();
        registry.add_methods([Method::new("math.sum", sum)]);
        let method = registry.method("math.sum").expect("it is registered");
        assert_eq!(method.call(&Context, params(json!({"terms": [1, 2]}))), Ok(json!(3)));
        for wrong in [json!({}), json!({"terms": "x"}), json!({"terms": [], "more": 1})] {
            assert_eq!(method.call(&Context, params(wrong)).map_err(|why| why.code), Err(BAD_PARAMS));
        }
        assert!(registry.method("math.product").is_none());
        assert_eq!(registry.methods().collect::<Vec<_>>(), ["math.sum"]);
    }

    #[test]
    fn a_transport_is_chosen_by_the_profile() {
        let profile = profile::load(
            &json!({"name": "x", "groups": [{"name": "s", "target": "udp://127.0.0.1:9", "model": {"stream": {}}}]})
                .to_string(),
        );
        let profile = profile.expect("a profile");
        let mut registry = Registry::default();
        let refused = |registry: &Registry| registry.transport(&profile).err().map(|why| why.code);
        assert_eq!(refused(&registry), Some("ND-104-06"));
        registry.add_transport("dpdk", |_, _| None);
        assert_eq!(refused(&registry), Some("ND-104-06"));
        registry.add_transport("sockets", |_, _| {
            Some(Err(SetupError::new("ND-92-06", "cores", "no core", "Name one")))
        });
        assert_eq!(refused(&registry), Some("ND-92-06"));
    }
}
