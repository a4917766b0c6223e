//! The client's certificate and key, shown to servers that ask for them.

use super::{CA_MAX, Problem};
use profile::Tls;
use profile::file;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{Error, InconsistentKeys, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

/// What the client answered a server that asked for its certificate (CertificateRequest, RFC 5246 §7.4.4, RFC 8446 §4.3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificate {
    /// It has none.
    Missing,
    /// Its key makes no signature of a scheme that the server takes.
    Unsuitable,
    /// It was sent.
    Shown,
}

thread_local! {
    /// The answer of the handshake that this thread has moved on last. All connections of a group share their
    /// configuration, and the library does not say which one it asks for.
    static ANSWER: Cell<Option<ClientCertificate>> = const { Cell::new(None) };
}

/// Whether, since this was last called on this thread, a server asked for a certificate, and the answer.
pub fn requested_client_certificate() -> Option<ClientCertificate> {
    ANSWER.take()
}

/// The client's certificate, if it has one.
#[derive(Debug, Default)]
pub(super) struct Identity(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identity {
    fn resolve(&self, _issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let suits = |own: &&Arc<CertifiedKey>| own.key.choose_scheme(schemes).is_some();
        ANSWER.set(Some(match &self.0 {
            None => ClientCertificate::Missing,
            Some(own) if suits(&own) => ClientCertificate::Shown,
            Some(_) => ClientCertificate::Unsuitable,
        }));
        self.0.clone()
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

/// The client's certificate with those of the CAs between, and its key. The server judges the certificate: it is not
/// parsed here, where one of X.509 v1 would be refused.
pub(super) fn of(tls: &Tls, provider: &CryptoProvider) -> Result<Identity, Problem> {
    let Some(cert) = &tls.cert else {
        let what = "there is a key and no certificate".to_owned();
        let alone = ("key", what, "Name the certificate in tls.cert, or leave tls.key out".to_owned());
        return if tls.key.is_some() { Err(alone) } else { Ok(Identity::default()) };
    };
    Ok(Identity(Some(Arc::new(certified(cert, tls.key.as_deref(), provider)?))))
}

/// A certificate with those of the CAs between, and its key; without a file for the key, it is in that of the certificate.
pub(super) fn certified(
    cert: &str,
    key: Option<&str>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, Problem> {
    let (chain, der, at) = files(cert, key)?;
    let key = provider.key_provider.load_private_key(der).map_err(|e| {
        let Error::General(why) = e else {
            return (at, format!("the key cannot be used ({e})"), KINDS.to_owned());
        };
        (at, format!("the key is of a kind or size that is not supported ({why})"), KINDS.to_owned())
    })?;
    let own = CertifiedKey::new(chain, key);
    if key_matches(&own) {
        return Ok(own);
    }
    let what = "the key does not fit the certificate of tls.cert".to_owned();
    Err((at, what, "Name the key that the certificate was made for".to_owned()))
}

/// Whether the key is the certificate's. Of a certificate that the library does not parse: whether the public key is in it.
fn key_matches(own: &CertifiedKey) -> bool {
    match own.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => true,
        Err(Error::InconsistentKeys(_)) => false,
        Err(_) => contains_public_key(own.cert.first(), &*own.key),
    }
}

/// The end of a public key is its bits, however the algorithm before them is written.
fn contains_public_key(cert: Option<&CertificateDer<'_>>, key: &dyn SigningKey) -> bool {
    let (Some(cert), Some(public)) = (cert, key.public_key()) else { return true };
    let bits = public.last_chunk::<KEY_BITS>();
    bits.is_none_or(|bits| cert.windows(KEY_BITS).any(|part| part == bits))
}

/// Bytes at the end of a public key by which it is found: no kind of key that is supported has fewer.
const KEY_BITS: usize = 32;
const CERT: &str = "Give a PEM file with the certificate";
const KEY: &str = "Give a PEM file with the key, without a passphrase";
const KINDS: &str = "Use a key of RSA with 2048 to 4096 bits, of ECDSA with P-256 or P-384, or of Ed25519";

type Files = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>, &'static str);

/// Certificates, the key, and which setting names the key's file.
fn files(cert: &str, key: Option<&str>) -> Result<Files, Problem> {
    let read = |at: &'static str, path: &str, fix: &str| {
        file::read(Path::new(path), CA_MAX)
            .map_err(|e| (at, format!("{path:?} cannot be used ({e})"), fix.to_owned()))
    };
    let pem = read("cert", cert, CERT)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let bad = |e: String| ("cert", format!("{cert:?} cannot be used ({e})"), CERT.to_owned());
    let chain = chain.map_err(|e| bad(e.to_string()))?;
    if chain.is_empty() {
        return Err(bad("no certificate in it".to_owned()));
    }
    let (at, path) = key.map_or(("cert", cert), |key| ("key", key));
    let pem = read(at, path, KEY)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let encrypted = pem.windows(9).any(|words| words == b"ENCRYPTED");
        let why = if encrypted { "its key has a passphrase" } else { "no key in it" };
        let fix = if at == "cert" { "Name the key's file in tls.key" } else { KEY };
        (at, format!("{path:?} cannot be used ({why})"), fix.to_owned())
    })?;
    Ok((chain, key, at))
}
