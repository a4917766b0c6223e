//! The end of packets that nobody wants.

use crate::kind::{Build, ElementKind};
use dpdk::Batch;
use engine::{Cx, Element, ElementInfo};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Drops all that comes, and counts it as `discarded`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {}

impl ElementKind for Options {
    const KIND: &'static str = "discard";
    const DROPS: &'static [&'static str] = &["discarded"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = "{}";

    fn outputs(&self) -> Vec<String> {
        Vec::new()
    }

    fn build(&self, _: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Discard))
    }
}

/// Element: drops all that comes.
#[derive(Debug)]
pub struct Discard;

impl Element for Discard {
    fn about(&self) -> ElementInfo {
        ElementInfo { kind: Options::KIND, takes: true, outputs: &[], drops: Options::DROPS, polled: false }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        cx.discard(batch, 0);
    }
}
