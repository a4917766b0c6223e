//! TLS client settings: whom to trust, and what name to ask for.

use profile::Tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

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
    let config = if tls.is_some_and(|t| t.insecure) {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
            .with_no_client_auth()
    } else {
        builder.with_root_certificates(roots(tls.and_then(|t| t.ca.as_deref()))?).with_no_client_auth()
    };
    Ok((Arc::new(config), server))
}

fn roots(ca: Option<&str>) -> Result<RootCertStore, Problem> {
    let mut store = RootCertStore::empty();
    match ca {
        Some(path) => {
            let bad = |e: String| {
                (
                    "ca",
                    format!("{path:?} cannot be used ({e})"),
                    "Give a PEM file with CA certificates".to_owned(),
                )
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|e| bad(e.to_string()))? {
                let certificate = certificate.map_err(|e| bad(e.to_string()))?;
                store.add(certificate).map_err(|e| bad(e.to_string()))?;
            }
            if store.is_empty() {
                return Err(bad("no certificate in it".to_owned()));
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                let fix = "Install the package ca-certificates, or name a CA file in tls.ca".to_owned();
                return Err(("ca", "this machine trusts no certificate authority".to_owned(), fix));
            }
        }
    }
    Ok(store)
}

/// Takes any certificate but still checks signatures, so that the handshake is the same work.
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
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
