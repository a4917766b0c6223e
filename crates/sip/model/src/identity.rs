//! Signed calls: an Identity header field with a PASSporT (RFC 8224), computed for each.

use crate::agent::UserAgent;
use crate::method::Method;
use crate::scenario::line;
use protocol::data::Data;
use protocol::model::Cx;
use protocol::problem::Problem;
use protocol::template::Template;
use protocol::time::Time;
use rand::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sip_core::message::header::Date;
use sip_core::passport::{Claims, Party, PassportError, Signer};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Header fields that a signature sets.
pub(crate) const SIGNED: [&str; 3] = ["Date", "Identity", "y"];

/// Who signs calls, by ES256.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Private key on P-256, in PEM (PKCS #8). It is not kept; `{env: NAME}` and `{file: PATH}` name where it is.
    #[schemars(extend("x-netdyno-secret" = "key"))]
    pub key: String,
    /// URL of its certificate.
    pub x5u: String,
    /// Attestation of SHAKEN (RFC 8588). Default: none, and the token is a plain PASSporT.
    #[serde(default)]
    pub attest: Option<Attestation>,
    /// With `attest`: origination identifier; a template. Default: a random UUID for each call.
    #[serde(default)]
    pub origid: Option<String>,
    /// Caller in the token, as a number or URI; a template. Default: that of From.
    #[serde(default)]
    pub orig: Option<String>,
    /// Callee in the token, as a number or URI; a template. Default: that of To.
    #[serde(default)]
    pub dest: Option<String>,
}

/// What the signer knows about the caller (RFC 8588 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Attestation {
    /// Full.
    A,
    /// Partial.
    B,
    /// Gateway.
    C,
}

impl Attestation {
    fn name(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }
}

/// A signer, ready to sign.
#[derive(Debug)]
pub(crate) struct Signature {
    signer: Signer,
    attest: Option<Attestation>,
    origid: Option<Template>,
    orig: Option<Template>,
    dest: Option<Template>,
    /// A time of the run, and the same in seconds since 1970: the clock is read once.
    clock: OnceLock<(Time, u64)>,
}

impl Identity {
    pub(crate) fn compile(&self, data: Option<&Data>) -> Result<Signature, Problem> {
        let signer = Signer::new(self.key.as_bytes(), &self.x5u, self.attest.is_some());
        let signer = signer.map_err(|error| {
            let (key, fix) = match error {
                PassportError::Url => ("identity.x5u", "use one like https://certificates.example.net/a.pem"),
                _ => (
                    "identity.key",
                    "make one: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256",
                ),
            };
            Problem::new(key, error.to_string(), fix)
        })?;
        let shaken = self.attest.is_some() || self.origid.is_none();
        let what = || "belongs to an attestation".into();
        Problem::unless(shaken, "identity.origid", what, "add `attest`, or leave it out")?;
        let template = |text: &Option<String>, key: &str| {
            text.as_deref().map(|text| line(text, &format!("identity.{key}"), data)).transpose()
        };
        Ok(Signature {
            signer,
            attest: self.attest,
            origid: template(&self.origid, "origid")?,
            orig: template(&self.orig, "orig")?,
            dest: template(&self.dest, "dest")?,
            clock: OnceLock::new(),
        })
    }
}

impl Signature {
    /// Whether requests of this method are signed outside of a dialog.
    pub fn signs(&self, method: Method) -> bool {
        matches!(method, Method::Invite | Method::Message)
    }

    /// Append Date and Identity to a request that has From and To.
    pub fn write(&self, agent: &UserAgent, cx: &mut Cx<'_>, out: &mut Vec<u8>) {
        let mut text = |template: &Option<Template>| {
            let mut rendered = Vec::new();
            let template = template.as_ref()?;
            agent.render(template, cx, &mut rendered);
            Some(String::from_utf8_lossy(&rendered).into_owned())
        };
        let orig = text(&self.orig).unwrap_or_else(|| uri_of(out, b"\r\nFrom: <"));
        let dest = text(&self.dest).unwrap_or_else(|| uri_of(out, b"\r\nTo: <"));
        let origid = text(&self.origid);
        let shaken = self
            .attest
            .map(|attest| (attest.name(), origid.unwrap_or_else(|| uuid(cx.rng.random::<u128>()))));
        let issued_at = self.seconds(cx.now);
        let claims = Claims {
            issued_at,
            from: Party(&orig),
            to: Party(&dest),
            shaken: shaken.as_ref().map(|(attest, origid)| (*attest, &**origid)),
        };
        // without random numbers there is no signature, and the server will say so
        let Ok(identity) = self.signer.sign(&claims) else { return };
        let date = Date { unix: issued_at };
        out.extend_from_slice(format!("Date: {date}\r\nIdentity: {identity}\r\n").as_bytes());
    }

    /// Seconds since 1970 at a time of the run.
    fn seconds(&self, now: Time) -> i64 {
        let (began, unix) = self.clock.get_or_init(|| {
            (now, SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
        });
        i64::try_from(unix + now.since(*began) / 1_000_000_000).unwrap_or(i64::MAX)
    }
}

/// The URI behind `begin`, which ends at `>`.
fn uri_of(message: &[u8], begin: &[u8]) -> String {
    let from = memchr::memmem::find(message, begin).map_or(message.len(), |at| at + begin.len());
    let rest = &message[from..];
    let end = memchr::memchr(b'>', rest).unwrap_or(rest.len());
    String::from_utf8_lossy(&rest[..end]).into_owned()
}

/// A random UUID (RFC 9562 section 5.4).
fn uuid(random: u128) -> String {
    let marked = random & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let digits = format!("{marked:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}
