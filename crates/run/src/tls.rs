//! TLS client settings: whom to trust, and what name to ask for.

use profile::Tls;
use profile::file;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
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
            let pem = file::read(Path::new(path), CA_MAX).map_err(|e| bad(e.to_string()))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
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

/// Why the TLS handshake failed, by its name in the library and with what to do.
pub fn cause(error: &Error) -> String {
    let way = match error {
        Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer => {
                "nobody that is trusted here has signed it; name its CA with tls: {ca: FILE}, or check none with tls: \
                 {insecure: true}"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "it has expired; renew it, or check none with tls: {insecure: true}"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "it is not valid yet: are both clocks right?"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "it is for another name than the target's; say which with tls: {server_name: NAME}"
            }
            CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                "it is a CA's own; give the server one that the CA has signed, or check none with tls: {insecure: true}"
            }
            _ => "check none with tls: {insecure: true}",
        },
        Error::InvalidMessage(_) => "is there a server with TLS on this port?",
        Error::AlertReceived(AlertDescription::CertificateRequired | AlertDescription::BadCertificate) => {
            "the server wants a certificate of the client, and it has none"
        }
        Error::AlertReceived(AlertDescription::ProtocolVersion) => "the server speaks no TLS 1.2 or 1.3",
        Error::AlertReceived(AlertDescription::UnrecognisedName) => {
            "the server knows no such name; say which with tls: {server_name: NAME}"
        }
        _ => return error.to_string(),
    };
    format!("{error}: {way}")
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
