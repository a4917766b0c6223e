//! Packets twice: on their way, and to whoever looks at them.

use crate::kind::{Build, ElementKind};
use dpdk::{Batch, Mempool};
use engine::{Cx, Element, ElementInfo};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes packets on by `out`, and a clone of each by `copy`. A clone shares the packet's bytes until one of both is changed. A
/// packet for whose clone there is no memory goes its way all the same; the clone is counted as `no_memory`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {}

impl ElementKind for Options {
    const KIND: &'static str = "tee";
    const DROPS: &'static [&'static str] = &["no_memory"];
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = "{}";

    fn outputs(&self) -> Vec<String> {
        vec!["out".into(), "copy".into()]
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        Ok(Box::new(Tee { pool: cx.pool.clone() }))
    }
}

/// Element: clones packets to its second output.
#[derive(Debug)]
pub struct Tee {
    pool: Mempool,
}

impl Element for Tee {
    fn about(&self) -> ElementInfo {
        ElementInfo {
            kind: Options::KIND,
            takes: true,
            outputs: &["out", "copy"],
            drops: Options::DROPS,
            polled: false,
        }
    }

    fn push(&mut self, batch: &mut Batch, cx: &mut Cx<'_>) {
        for mbuf in batch.frames() {
            match self.pool.clone_of(mbuf) {
                Some(clone) => cx.emit(1, clone),
                None => cx.count(0, 1),
            }
        }
    }
}
