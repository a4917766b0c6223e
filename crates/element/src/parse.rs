//! The kind of element that parses packets, once for all stages behind it.

use crate::kind::{Build, ElementKind};
use engine::{Element, Parser, parser};
use profile::Error as SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Finds the headers of packets and the hash of their flow, once: later elements read them with the packet. What is broken is
/// dropped by its fault; what is no IP, such as ARP, passes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The port by which its packets come in, for elements that tell sides apart. Default: it is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Verify checksums of TCP, UDP and ICMP, and drop packets whose are wrong. Default false; that of IPv4 headers always is.
    #[serde(default)]
    pub verify: bool,
}

impl ElementKind for Options {
    const KIND: &'static str = "parser";
    const DROPS: &'static [&'static str] = &parser::DROPS;
    const REPLICABLE: bool = true;
    const EXAMPLE: &'static str = r#"{"verify": true}"#;

    fn ports(&self) -> Vec<(&'static str, &str)> {
        self.port.iter().map(|port| ("port", port.as_str())).collect()
    }

    fn build(&self, cx: &mut Build<'_>) -> Result<Box<dyn Element>, SetupError> {
        let number = self.port.as_ref().map(|port| cx.port("port", port)).transpose()?;
        let number = number.and_then(|(number, _)| u16::try_from(number).ok()).unwrap_or(u16::MAX);
        let parser = Parser::new(number);
        Ok(Box::new(if self.verify { parser.verifying() } else { parser }))
    }
}
