//! Servers that are trusted by the certificates of `tls.ca`.

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::sync::Arc;

/// Accepts servers whose certificate one of the named certificates has signed, or is. The latter has CA:TRUE where
/// `openssl req -x509` made it, and the library takes no such certificate from a server, although it was named.
#[derive(Debug)]
pub(super) struct NamedCertificates {
    signed: Arc<WebPkiServerVerifier>,
    named: Vec<CertificateDer<'static>>,
}

impl NamedCertificates {
    /// Of at least one certificate. The error says why one cannot be used.
    pub(super) fn new(
        named: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, String> {
        let mut store = RootCertStore::empty();
        for certificate in &named {
            store.add(certificate.clone()).map_err(|e| e.to_string())?;
        }
        let signed = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
        Ok(Self { signed: signed.build().map_err(|e| e.to_string())?, named })
    }
}

/// Whether the library refuses a certificate for CA:TRUE alone; it looks at the dates before.
fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(other)) = error else { return false };
    other.to_string().contains("CaUsedAsEndEntity")
}

impl ServerCertVerifier for NamedCertificates {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.signed.verify_server_cert(end_entity, intermediates, server_name, ocsp, now) {
            Err(error) if is_authority(&error) && self.named.iter().any(|one| one == end_entity) => {
                let certificate = ParsedCertificate::try_from(end_entity)?;
                rustls::client::verify_server_name(&certificate, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use rustls::crypto::ring;
    use std::time::Duration;

    const YEAR: u64 = 365 * 24 * 3600;

    /// A certificate with CA:TRUE that signed itself, as `openssl req -x509` makes it, for `localhost`.
    fn authority(name: &str) -> (CertificateParams, KeyPair, CertificateDer<'static>) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let der = params.self_signed(&key).expect("a certificate").der().clone();
        (params, key, der)
    }

    /// What is said of a server with this certificate, asked for as `host` in the year `year`.
    fn judged(
        named: &CertificateDer<'static>,
        shown: &CertificateDer<'_>,
        host: &'static str,
        year: u64,
    ) -> Result<(), Error> {
        let verifier = NamedCertificates::new(vec![named.clone()], &Arc::new(ring::default_provider()));
        let server = ServerName::try_from(host).expect("a name");
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * YEAR + YEAR / 2));
        verifier.expect("usable").verify_server_cert(shown, &[], &server, &[], now).map(drop)
    }

    #[test]
    fn a_server_may_show_the_very_certificate_that_was_named() {
        let (_, _, own) = authority("one");
        assert_eq!(judged(&own, &own, "localhost", 2025), Ok(()));
        // it is still for one name, and for some time
        let name = judged(&own, &own, "other", 2025).expect_err("another name");
        assert!(
            matches!(name, Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })),
            "{name}"
        );
        let late = judged(&own, &own, "localhost", 2032).expect_err("expired");
        assert!(matches!(late, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{late}");
    }

    #[test]
    fn another_certificate_of_a_ca_is_not_taken() {
        let ((params, key, own), (_, _, other)) = (authority("one"), authority("one"));
        assert!(judged(&own, &other, "localhost", 2025).is_err(), "of the same name, and not the same");
        // one that the named one has signed is no server's own either, unless it is a server's
        let child = KeyPair::generate().expect("a key");
        for (is_ca, fine) in [(IsCa::Ca(BasicConstraints::Unconstrained), false), (IsCa::ExplicitNoCa, true)]
        {
            let mut below = params.clone();
            below.is_ca = is_ca;
            below.distinguished_name.push(DnType::CommonName, "below");
            let signed = below.signed_by(&child, &Issuer::from_params(&params, &key)).expect("signed");
            assert_eq!(judged(&own, signed.der(), "localhost", 2025).is_ok(), fine);
        }
    }
}
