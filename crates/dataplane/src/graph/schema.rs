//! What a graph's file may say, for editors and for the reference: all kinds with their options.

use element::registry::Registry;
use profile::graph::GraphFile;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The JSON Schema of a file, with the options of every kind that does not need a run.
pub fn schema(registry: &Registry) -> Value {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let kinds: Vec<Value> = registry
        .kinds()
        .filter(|kind| !kind.of_run)
        .map(|kind| {
            let mut schema = kind.schema(&mut generator).to_value();
            if let Some(properties) = schema
                .as_object_mut()
                .map(|schema| schema.entry("properties").or_insert_with(|| Map::new().into()))
            {
                properties["kind"] = json!({"const": kind.name, "description": "The kind of element."});
            }
            let mut required = vec![json!("kind")];
            required.extend(schema["required"].as_array().into_iter().flatten().cloned());
            schema["required"] = required.into();
            schema["title"] = kind.name.into();
            schema
        })
        .collect();
    let mut whole = generator.into_root_schema_for::<GraphFile>().to_value();
    whole["$id"] = "urn:netdyno:schema:graph-1".into();
    whole["$defs"]["ElementSpec"] =
        json!({"oneOf": kinds, "description": "An element: its kind, and the options of that kind."});
    whole
}

/// What the reference says of each kind: name, description, outputs of the example, drop reasons, options, an example.
pub fn reference(registry: &Registry) -> Value {
    let mut generator = SchemaGenerator::new(SchemaSettings::draft2020_12());
    let kinds: Vec<Value> = registry
        .kinds()
        .map(|kind| {
            let schema = kind.schema(&mut generator).to_value();
            let example: Map<String, Value> = serde_json::from_str(kind.example).unwrap_or_default();
            let outputs = kind.read(&example, "").map(|settings| settings.outputs()).unwrap_or_default();
            json!({
                "name": kind.name,
                "schema": schema,
                "outputs": outputs,
                "drops": kind.drops,
                "replicable": kind.replicable,
                "example": example,
            })
        })
        .collect();
    json!({"kinds": kinds, "$defs": generator.take_definitions(true)})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::kinds;

    #[test]
    fn every_kind_is_in_the_schema_and_the_reference() {
        let (schema, reference) = (schema(&kinds()), reference(&kinds()));
        let variants = schema["$defs"]["ElementSpec"]["oneOf"].as_array().expect("kinds");
        assert_eq!(variants.len(), kinds().kinds().count());
        let text = schema.to_string();
        for (kind, variant) in kinds().kinds().zip(variants) {
            assert_eq!(variant["properties"]["kind"]["const"], kind.name);
            assert_eq!(variant["additionalProperties"], false, "{}", kind.name);
        }
        // Whatever is referred to is there.
        for reference in text.split("\"$ref\":\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(schema["$defs"][reference].is_object(), "{reference}");
        }
        assert_eq!(reference["kinds"].as_array().map(Vec::len), Some(variants.len()));
        assert_eq!(reference["kinds"][1]["outputs"], json!(["deny", "pass"]));
    }
}
