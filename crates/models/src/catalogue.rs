//! What all models say of themselves in one document: the answer of `core.describe`, and `schema/models.json`.

use crate::{ALL, Params};
use protocol::describe::{Counter, Description};
use protocol::meter::{COUNTERS, Failure};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// All models, and what is the same for all of them.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Catalogue {
    /// Every model, in the order of the registry.
    pub models: Vec<ModelDescription>,
    /// The counters that every group has.
    #[schemars(with = "Vec<Counter>")]
    pub counters: [Counter; COUNTERS.len()],
    /// Why a flow or a message may fail.
    pub failures: Vec<FailureKind>,
}

/// What one model says about itself, with its defaults and secrets.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ModelDescription {
    /// What it says about itself.
    #[serde(flatten)]
    pub about: &'static Description,
    /// Its parameters when a profile says nothing about them, as a group's `model`.
    #[schemars(with = "Map<String, Value>")]
    pub defaults: Params,
    /// Keys whose values are secrets, and how: `true`, all of it; `"key"`, the same, and it is never sent; `"query"`, parameters of a URL; `"names"`, by the name
    /// of the entry.
    pub secrets: Map<String, Value>,
}

/// A kind of failure.
#[derive(Debug, Serialize, JsonSchema)]
pub struct FailureKind {
    /// Its name, `timeout` in `GROUP.errors.timeout`.
    pub name: &'static str,
    /// What it means.
    pub about: &'static str,
}

impl Catalogue {
    /// All that is known.
    pub fn new() -> Self {
        let schema = schemars::schema_for!(Params).to_value();
        let models = ALL.iter().filter_map(|about| {
            let secrets = secrets(&schema, about.name);
            Some(ModelDescription { about, defaults: Params::default_of(about.name)?, secrets })
        });
        let failures = Failure::ALL.map(|kind| FailureKind { name: kind.name(), about: kind.about() });
        Self { models: models.collect(), counters: COUNTERS, failures: failures.into() }
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::new()
    }
}

/// The keys that the schema of model `name` marks as secrets.
fn secrets(schema: &Value, name: &str) -> Map<String, Value> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let reference = variants.filter_map(|one| one["properties"][name]["$ref"].as_str()).next();
    let path = reference.and_then(|path| path.strip_prefix('#')).unwrap_or_default();
    let mut found = Map::new();
    marks(schema, path, "", &mut found);
    found
}

/// What the keys of the object at `path` of the schema are marked with; those of an object in it, or in a list, are `NAME.KEY`.
fn marks(schema: &Value, path: &str, within: &str, found: &mut Map<String, Value>) {
    let keys = schema.pointer(path).and_then(|node| node["properties"].as_object());
    for (key, node) in keys.into_iter().flatten() {
        if let Some(mark) = node.get("x-netdyno-secret") {
            found.insert(format!("{within}{key}"), mark.clone());
        }
        let optional = node["anyOf"].as_array().into_iter().flatten();
        let inner = [node, &node["items"]].into_iter().chain(optional);
        let inner = inner.filter_map(|one| one["$ref"].as_str()?.strip_prefix('#'));
        for inner in inner.filter(|_| within.is_empty()) {
            marks(schema, inner, &format!("{key}."), found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_there_with_its_defaults_and_secrets() {
        let all = serde_json::to_value(Catalogue::new()).expect("JSON");
        let models = all["models"].as_array().expect("a list");
        assert_eq!(models.len(), Params::NAMES.len());
        let of = |name: &str| models.iter().find(|model| model["name"] == name).expect(name);
        for model in models {
            let name = model["name"].as_str().expect("a name");
            assert!(model["defaults"][name].is_object(), "{name}");
            assert!(!model["schemes"][0]["name"].as_str().unwrap_or_default().is_empty(), "{name}");
        }
        assert_eq!(of("mqtt")["secrets"], serde_json::json!({"password": true}));
        assert_eq!(
            of("sip")["secrets"],
            serde_json::json!({
                "aka.k": "key", "aka.op": "key", "aka.opc": "key", "headers": "names", "identity.key": "key", "password": "key",
            })
        );
        assert_eq!(
            of("http")["secrets"],
            serde_json::json!({
                "before.headers": "names", "before.path": "query", "headers": "names", "path": "query",
                "then.headers": "names", "then.path": "query",
            })
        );
        assert_eq!(all["counters"].as_array().map(Vec::len), Some(COUNTERS.len()));
        assert_eq!(all["failures"][2]["name"], "timeout");
    }
}
