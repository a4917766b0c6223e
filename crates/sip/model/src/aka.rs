//! Keys of digest AKA, as a profile names them.

use protocol::data::Data;
use protocol::problem::Problem;
use protocol::template::Template;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sip_core::digest;

/// What a SIM shares with its network, in 32 hexadecimal digits each. Sequence numbers are not kept: any SQN is taken.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Aka {
    /// Subscriber key K; a template. It is not kept; `{env: NAME}` and `{file: PATH}` name where it is.
    #[schemars(extend("x-netdyno-secret" = "key"))]
    pub k: String,
    /// OP of the operator; a template, and no more kept than K. Default: none; `opc` is given.
    #[serde(default)]
    #[schemars(extend("x-netdyno-secret" = "key"))]
    pub op: Option<String>,
    /// OPc, which is OP combined with K; a template, and no more kept than K. Default: none; `op` is given.
    #[serde(default)]
    #[schemars(extend("x-netdyno-secret" = "key"))]
    pub opc: Option<String>,
}

/// The keys, to be filled in for each user agent.
#[derive(Debug)]
pub(crate) struct AkaTemplates {
    k: Template,
    operator: Template,
    /// Whether `operator` is OPc.
    combined: bool,
}

impl Aka {
    pub(crate) fn compile(&self, data: Option<&Data>) -> Result<AkaTemplates, Problem> {
        let (key, operator) = match (&self.op, &self.opc) {
            (Some(op), None) => ("aka.op", op),
            (None, Some(opc)) => ("aka.opc", opc),
            _ => return Err(Problem::new("aka", "has not exactly one of op and opc", "give one of them")),
        };
        let (k, operator) = (hex_template(&self.k, "aka.k", data)?, hex_template(operator, key, data)?);
        Ok(AkaTemplates { k, operator, combined: self.opc.is_some() })
    }
}

impl AkaTemplates {
    /// The keys of one user agent; none: those of a table or a template are no keys.
    pub fn keys(&self, rendered: &mut impl FnMut(&Template) -> Vec<u8>) -> Option<digest::Aka> {
        let (k, operator) = (hex(&rendered(&self.k))?, hex(&rendered(&self.operator))?);
        if self.combined {
            Some(digest::Aka::with_opc(k, operator))
        } else {
            digest::Aka::with_op(k, operator)
        }
    }
}

fn hex_template(text: &str, key: &str, data: Option<&Data>) -> Result<Template, Problem> {
    let template = Template::with(text, key, data)?;
    let right = template.fixed().is_none_or(|fixed| hex(fixed).is_some());
    Problem::unless(
        right,
        key,
        || "is not 32 hexadecimal digits".into(),
        "write the 16 bytes of the key so",
    )?;
    template.cells_are(key, |b| b.is_ascii_hexdigit())?;
    Ok(template)
}

fn hex(digits: &[u8]) -> Option<[u8; 16]> {
    let digits = std::str::from_utf8(digits.trim_ascii()).ok()?;
    let right = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    right.then_some(())?;
    Some(u128::from_str_radix(digits, 16).ok()?.to_be_bytes())
}
