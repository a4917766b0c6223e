//! TLS client settings: whom to trust, and what name to ask for.

use profile::Tls;
use profile::file;
use protocol::cause::{Cause, Detail, TLS_PORT, other_protocol};
use protocol::meter::Failure;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
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
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAll(provider)))
    } else {
        builder.with_root_certificates(roots(tls.and_then(|t| t.ca.as_deref()))?)
    };
    let config = match tls.map(identity).transpose()?.flatten() {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|e| {
            let what = format!("the key does not fit the certificate of tls.cert ({e})");
            ("key", what, "Name the key that the certificate was made for".to_owned())
        })?,
        None => builder.with_no_client_auth(),
    };
    Ok((Arc::new(config), server))
}

/// The client's certificate with those of the CAs between, and its key.
fn identity(tls: &Tls) -> Result<Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>, Problem> {
    let Some(cert) = &tls.cert else {
        let what = "there is a key and no certificate".to_owned();
        let alone = ("key", what, "Name the certificate in tls.cert, or leave tls.key out".to_owned());
        return if tls.key.is_some() { Err(alone) } else { Ok(None) };
    };
    let read = |at: &'static str, path: &str, fix: &str| {
        file::read(Path::new(path), CA_MAX)
            .map_err(|e| (at, format!("{path:?} cannot be used ({e})"), fix.to_owned()))
    };
    const CERT: &str = "Give a PEM file with the client's certificate";
    const KEY: &str = "Give a PEM file with the key, without a passphrase";
    let pem = read("cert", cert, CERT)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let bad = |e: String| ("cert", format!("{cert:?} cannot be used ({e})"), CERT.to_owned());
    let chain = chain.map_err(|e| bad(e.to_string()))?;
    if chain.is_empty() {
        return Err(bad("no certificate in it".to_owned()));
    }
    let (at, path) = tls.key.as_ref().map_or(("cert", cert), |key| ("key", key));
    let pem = read(at, path, KEY)?;
    let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        let encrypted = pem.windows(9).any(|words| words == b"ENCRYPTED");
        let why = if encrypted { "its key has a passphrase" } else { "no key in it" };
        let fix = if at == "cert" { "Name the key's file in tls.key" } else { KEY };
        (at, format!("{path:?} cannot be used ({why})"), fix.to_owned())
    })?;
    Ok(Some((chain, key)))
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

/// Why a TLS connection failed, when `bytes` came last: as a cause, and by its name in the library with what to do.
pub fn failure(error: &Error, bytes: &[u8]) -> (Cause, String) {
    if matches!(error, Error::InvalidMessage(_))
        && let Some(other) = other_protocol(bytes).filter(|other| *other != TLS_PORT)
    {
        return (Cause::named(Failure::Tls, other), format!("no TLS: {other}"));
    }
    let (name, way) = match error {
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::InvalidMessage(_) => ("no TLS on this port", "is there a server with TLS on this port?"),
        Error::AlertReceived(alert) => (alert_name(*alert), of_alert(*alert)),
        Error::PeerIncompatible(_) => ("no common TLS version or cipher", ""),
        Error::NoCertificatesPresented => ("no certificate", "the server showed none"),
        _ => ("", ""),
    };
    let detail = if name.is_empty() { Detail::None } else { Detail::Named(name) };
    let what = if way.is_empty() { error.to_string() } else { format!("{error}: {way}") };
    (Cause { kind: Failure::Tls, detail }, what)
}

/// The fault of a certificate, and what to do.
fn of_certificate(why: &CertificateError) -> (&'static str, &'static str) {
    match why {
        CertificateError::UnknownIssuer => (
            "certificate of an unknown issuer",
            "nobody that is trusted here has signed it; name its CA with tls: {ca: FILE}, or check none with tls: \
             {insecure: true}",
        ),
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("certificate expired", "it has expired; renew it, or check none with tls: {insecure: true}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("certificate not valid yet", "it is not valid yet: are both clocks right?")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            "certificate for another name",
            "it is for another name than the target's; say which with tls: {server_name: NAME}",
        ),
        CertificateError::Revoked => ("certificate revoked", "its CA has revoked it; renew it"),
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            "certificate of a CA",
            "it is a CA's own; give the server one that the CA has signed, or check none with tls: {insecure: true}",
        ),
        _ => ("certificate not accepted", "check none with tls: {insecure: true}"),
    }
}

/// What follows from an alert.
fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate => {
            "the server wants a certificate of the client, or another one; name it with tls: {cert: FILE, key: FILE}"
        }
        AlertDescription::ProtocolVersion => "the server speaks no TLS 1.2 or 1.3",
        AlertDescription::UnrecognisedName => {
            "the server knows no such name; say which with tls: {server_name: NAME}"
        }
        AlertDescription::HandshakeFailure => "it shares no version, cipher or kind of key with this client",
        _ => "",
    }
}

/// By its name in RFC 8446 §6.
fn alert_name(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::CloseNotify => "alert close_notify",
        AlertDescription::UnexpectedMessage => "alert unexpected_message",
        AlertDescription::BadRecordMac => "alert bad_record_mac",
        AlertDescription::RecordOverflow => "alert record_overflow",
        AlertDescription::HandshakeFailure => "alert handshake_failure",
        AlertDescription::BadCertificate => "alert bad_certificate",
        AlertDescription::UnsupportedCertificate => "alert unsupported_certificate",
        AlertDescription::CertificateRevoked => "alert certificate_revoked",
        AlertDescription::CertificateExpired => "alert certificate_expired",
        AlertDescription::CertificateUnknown => "alert certificate_unknown",
        AlertDescription::IllegalParameter => "alert illegal_parameter",
        AlertDescription::UnknownCA => "alert unknown_ca",
        AlertDescription::AccessDenied => "alert access_denied",
        AlertDescription::DecodeError => "alert decode_error",
        AlertDescription::DecryptError => "alert decrypt_error",
        AlertDescription::ProtocolVersion => "alert protocol_version",
        AlertDescription::InsufficientSecurity => "alert insufficient_security",
        AlertDescription::InternalError => "alert internal_error",
        AlertDescription::InappropriateFallback => "alert inappropriate_fallback",
        AlertDescription::MissingExtension => "alert missing_extension",
        AlertDescription::UnsupportedExtension => "alert unsupported_extension",
        AlertDescription::UnrecognisedName => "alert unrecognized_name",
        AlertDescription::CertificateRequired => "alert certificate_required",
        AlertDescription::NoApplicationProtocol => "alert no_application_protocol",
        _ => "an alert of the server",
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    #[test]
    fn faults_of_tls_have_names() {
        let named = |error: Error, bytes: &[u8]| match failure(&error, bytes).0 {
            Cause { kind: Failure::Tls, detail: Detail::Named(name) } => name,
            other => panic!("{other:?}"),
        };
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(named(expired, b""), "certificate expired");
        let alert = Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert_eq!(named(alert, b"\x15\x03\x03\x00\x02\x02\x28"), "alert handshake_failure");
        let plain = || Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(named(plain(), b"HTTP/1.1 400 Bad Request\r\n"), "plain HTTP on this port");
        assert_eq!(named(plain(), b"SSH-2.0-OpenSSH_9.2\r\n"), "SSH on this port");
        assert_eq!(named(plain(), b"220 smtp ready\r\n"), "no TLS on this port");
    }
}
