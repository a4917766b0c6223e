//! Counts what passes a place in the graph: packets, as every element does, and bytes.

use crate::kind::{Build, ElementKind};
use engine::{Element, ElementInfo};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes packets on as they are, and counts them and their bytes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {}

impl ElementKind for Options {
    const KIND: &'static str = "counter";
    const DROPS: &'static [&'static str] = &[];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = "{}";

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Counter))
    }
}

/// Element: passes packets on; the engine counts them.
#[derive(Debug)]
pub struct Counter;

impl Element for Counter {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn counts_bytes(&self) -> bool {
        true
    }
}
