//! PASSporT (RFC 8225), signed with ES256: the value of an Identity header field (RFC 8224), with `attest` that of SHAKEN
//! (RFC 8588).

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};

/// Why there is no signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassportError {
    /// The key is not one for ES256.
    #[error("is no private key on P-256 in PEM (PKCS #8)")]
    Key,
    /// The URL of the certificate cannot stand in the header field.
    #[error("is no absolute URL")]
    Url,
    /// The system has no random numbers.
    #[error("the system gave no random numbers")]
    Random,
}

/// One who signs: a private key, and where its certificate is.
#[derive(Debug)]
pub struct Signer {
    key: EcdsaKeyPair,
    random: SystemRandom,
    /// The protected header, encoded, with its dot.
    head: String,
    /// Parameters of the header field.
    parameters: String,
}

/// Who calls whom.
#[derive(Debug, Clone, Copy)]
pub struct Claims<'a> {
    /// Seconds since 1970.
    pub issued_at: i64,
    /// The caller.
    pub from: Party<'a>,
    /// The callee.
    pub to: Party<'a>,
    /// Of SHAKEN: attestation and origination identifier.
    pub shaken: Option<(&'a str, &'a str)>,
}

/// A caller or callee: a telephone number where it is one, else a URI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Party<'a>(pub &'a str);

impl Party<'_> {
    /// A number without what separates its digits (RFC 8224 section 8.3), or the URI as it is.
    fn claim(self) -> (&'static str, String) {
        let rest = self.0.split_once(':').map_or(self.0, |(_, rest)| rest);
        let user = rest.split(['@', ';']).next().unwrap_or_default();
        let number = user.strip_prefix('+').unwrap_or(user);
        let digits: String = number.chars().filter(|one| !matches!(one, '-' | '.' | '(' | ')')).collect();
        let is_number =
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'*' | b'#'));
        if is_number { ("tn", digits) } else { ("uri", self.0.to_owned()) }
    }
}

impl Signer {
    /// A signer with a key in PEM; `x5u` is the URL of its certificate. `shaken`: claims have an attestation.
    pub fn new(pem: &[u8], x5u: &str, shaken: bool) -> Result<Self, PassportError> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|_| PassportError::Key)?;
        let random = SystemRandom::new();
        let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let key = EcdsaKeyPair::from_pkcs8(signing, key.secret_pkcs8_der(), &random)
            .map_err(|_| PassportError::Key)?;
        let fine = |b: u8| b.is_ascii_graphic() && !b"<>\"\\".contains(&b);
        if !x5u.contains("://") || !x5u.bytes().all(fine) {
            return Err(PassportError::Url);
        }
        let mut head = Map::from_iter([("alg".to_owned(), json!("ES256"))]);
        if shaken {
            head.insert("ppt".into(), json!("shaken"));
        }
        head.insert("typ".into(), json!("passport"));
        head.insert("x5u".into(), json!(x5u));
        let ppt = if shaken { ";ppt=shaken" } else { "" };
        let head = format!("{}.", encode(head));
        Ok(Self { key, random, head, parameters: format!(";info=<{x5u}>;alg=ES256{ppt}") })
    }

    /// The value of an Identity header field, in its full form.
    pub fn sign(&self, claims: &Claims<'_>) -> Result<String, PassportError> {
        let (from, to) = (claims.from.claim(), claims.to.claim());
        // keys in the order of their names (RFC 8225 section 9)
        let mut payload = Map::new();
        if let Some((attest, _)) = claims.shaken {
            payload.insert("attest".into(), json!(attest));
        }
        payload.insert("dest".into(), json!({to.0: [to.1]}));
        payload.insert("iat".into(), json!(claims.issued_at));
        payload.insert("orig".into(), json!({from.0: from.1}));
        if let Some((_, origid)) = claims.shaken {
            payload.insert("origid".into(), json!(origid));
        }
        let signed = format!("{}{}", self.head, encode(payload));
        let signature = self.key.sign(&self.random, signed.as_bytes()).map_err(|_| PassportError::Random)?;
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature.as_ref());
        Ok(format!("{signed}.{signature}{}", self.parameters))
    }
}

fn encode(object: Map<String, Value>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Value::Object(object).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_uris_are_told_apart() {
        for (uri, claim) in [
            ("sip:+1-215-555-1212@example.com;user=phone", ("tn", "12155551212")),
            ("sips:1000@example.com", ("tn", "1000")),
            ("tel:+1(215)555.1212;x=y", ("tn", "12155551212")),
            ("sip:alice@example.com", ("uri", "sip:alice@example.com")),
            ("sip:-@example.com", ("uri", "sip:-@example.com")),
        ] {
            assert_eq!(Party(uri).claim(), (claim.0, claim.1.to_owned()), "{uri}");
        }
    }

    #[test]
    fn keys_and_urls_that_cannot_be_used_are_refused() {
        let refused = |pem: &[u8], url| Signer::new(pem, url, false).expect_err("refused");
        assert_eq!(refused(b"", "https://a/b"), PassportError::Key);
        let short = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        assert_eq!(refused(short, "https://a/b"), PassportError::Key);
    }
}
