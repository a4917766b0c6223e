//! TLS client settings: whom to trust, and what name to ask for. TLS server settings: identity, client CAs and resumption.
//! Certificates of a fleet.

mod authority;
mod fault;
mod identity;
mod named;
mod server;

pub use self::authority::{Certificates, certificates};
pub use self::fault::{Handshake, closed, failure};
pub use self::identity::{ClientCertificate, requested_client_certificate};
pub use self::server::{ServerIdentity, ServerTls};

use self::named::NamedCertificates;
use profile::Tls;
use profile::file;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::path::Path;
use std::sync::Arc;

/// Most bytes of a file with CA certificates: all of the web's have a twentieth of it.
const CA_MAX: u64 = 4 << 20;

/// A problem with `tls.KEY`: the key, what is wrong, what to do.
type Problem = (&'static str, String, String);

/// Build the settings once; all devices of a group share them, and with them the session cache.
pub fn config(tls: Option<&Tls>, host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), Problem> {
    let name = tls.and_then(|t| t.server_name.as_deref()).unwrap_or(host).to_owned();
    let server = ServerName::try_from(name.clone()).map_err(|_| {
        (
            "server_name",
            format!("{name:?} is not a name a certificate can have"),
            "Give a DNS name or an address".to_owned(),
        )
    })?;
    let provider = Arc::new(ring::default_provider());
    let wrong = |e: Error| ("ca", format!("TLS cannot be set up ({e})"), String::new());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(wrong)?;
    let builder = if tls.is_some_and(|t| t.insecure) {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(Arc::clone(&provider))))
    } else if let Some(path) = tls.and_then(|t| t.ca.as_deref()) {
        let verifier = NamedCertificates::new(pem_certificates(path)?, &provider);
        let verifier = verifier.map_err(|e| unusable(path, &e))?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
    } else {
        builder.with_root_certificates(roots()?)
    };
    let identity = tls.map(|tls| identity::of(tls, &provider)).transpose()?.unwrap_or_default();
    Ok((Arc::new(builder.with_client_cert_resolver(Arc::new(identity))), server))
}

fn unusable(path: &str, why: &str) -> Problem {
    ("ca", format!("{path:?} cannot be used ({why})"), "Give a PEM file with CA certificates".to_owned())
}

/// The certificates of a PEM file.
fn pem_certificates(path: &str) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let pem = file::read(Path::new(path), CA_MAX).map_err(|e| unusable(path, &e.to_string()))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|e| unusable(path, &e.to_string()))?;
    if all.is_empty() {
        return Err(unusable(path, "no certificate in it"));
    }
    Ok(all)
}

/// The authorities that this machine trusts.
fn roots() -> Result<RootCertStore, Problem> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if store.is_empty() {
        let fix = "Install the package ca-certificates, or name a CA file in tls.ca".to_owned();
        return Err(("ca", "this machine trusts no certificate authority".to_owned(), fix));
    }
    Ok(store)
}

/// Accepts any server. Signatures are verified for the work that it is, and what that finds does not count: certificates
/// and keys that this library cannot read (X.509 v1, RSA of 1024 bits, P-521) are accepted too.
#[derive(Debug)]
struct AcceptAll(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAll {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        let _does_not_count = rustls::crypto::verify_tls12_signature(message, cert, dss, known);
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        let _does_not_count = rustls::crypto::verify_tls13_signature(message, cert, dss, known);
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.push(SignatureScheme::ECDSA_NISTP521_SHA512);
        schemes
    }
}
