//! Why TLS failed: a cause by name, and what to do.

use super::ClientCertificate;
use protocol::cause::{Cause, Detail, TLS_PORT, other_protocol};
use protocol::meter::Failure;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible, PeerMisbehaved};

/// How far a connection's TLS had come: an alert alone does not say what it is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handshake {
    /// The server has chosen version and cipher (ServerHello).
    pub agreed: bool,
    /// The server asked for the client's certificate, and got this answer.
    pub certificate: Option<ClientCertificate>,
    /// The server asked for a new handshake on the connection (HelloRequest of TLS 1.2), and has sent nothing since.
    pub renegotiation: bool,
}

/// What the server asked for and this client does not do, or has not got.
const REQUIRED: (&str, &str) = (
    "client certificate required",
    "the server wants a client certificate; name it with tls: {cert: FILE, key: FILE}",
);
const UNSUITABLE: (&str, &str) = (
    "client key of another kind required",
    "the server takes no signature that the client's key can make; use a key of another kind",
);
const REFUSED: (&str, &str) =
    ("client certificate refused", "the server does not accept the client certificate; see its log");
const RENEGOTIATION: (&str, &str) = (
    "renegotiation",
    "the server asked for renegotiation (TLS 1.2), which this client does not do; let it ask for a client certificate \
     in the first handshake (Apache: SSLVerifyClient outside of <Location>)",
);

/// Why a TLS connection failed that had come so far, when `bytes` came last: as a cause, and by its name in the library with
/// what to do.
pub fn failure(error: &Error, bytes: &[u8], handshake: Handshake) -> (Cause, String) {
    if matches!(error, Error::InvalidMessage(_))
        && !handshake.agreed
        && let Some(other) = other_protocol(bytes).filter(|other| *other != TLS_PORT)
    {
        return (Cause::named(Failure::Tls, other), format!("no TLS: {other}"));
    }
    let (name, way) = match error {
        Error::InvalidCertificate(why) => of_certificate(why),
        Error::InvalidMessage(_) if !handshake.agreed => {
            ("no TLS on this port", "is there a server with TLS on this port?")
        }
        Error::AlertReceived(alert) => of_alert(*alert, handshake),
        Error::PeerMisbehaved(PeerMisbehaved::TooManyRenegotiationRequests) => RENEGOTIATION,
        Error::PeerIncompatible(why) if is_version_or_cipher(why) => ("no common TLS version or cipher", ""),
        Error::PeerIncompatible(_) => ("TLS extension not supported", ""),
        Error::NoCertificatesPresented => ("no certificate", "the server showed none"),
        _ => ("", ""),
    };
    let detail = if name.is_empty() { Detail::None } else { Detail::Named(name) };
    let what = if way.is_empty() { error.to_string() } else { format!("{error}: {way}") };
    (Cause { kind: Failure::Tls, detail }, what)
}

/// Why the server closed the connection without an alert, where what came before says it.
pub fn closed(handshake: Handshake) -> Option<(Cause, &'static str)> {
    let (name, what) = match handshake {
        Handshake { renegotiation: true, .. } => RENEGOTIATION,
        Handshake { certificate: Some(ClientCertificate::Missing), .. } => (
            "closed after asking for a client certificate",
            "the server asked for a client certificate, got none and closed; name it with tls: {cert: FILE, key: FILE}",
        ),
        _ => return None,
    };
    Some((Cause::named(Failure::Tls, name), what))
}

fn is_version_or_cipher(why: &PeerIncompatible) -> bool {
    matches!(
        why,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::NoCipherSuitesInCommon
            | PeerIncompatible::NoKxGroupsInCommon
            | PeerIncompatible::NoSignatureSchemesInCommon
    )
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
            "it is a CA's own; trust this very certificate with tls: {ca: FILE}, give the server one that the CA has signed, or \
             check none with tls: {insecure: true}",
        ),
        CertificateError::Other(other) if other.to_string().contains("UnsupportedCertVersion") => (
            "certificate of X.509 v1",
            "it is of X.509 v1; give the server one of v3, or check none with tls: {insecure: true}",
        ),
        CertificateError::BadSignature => (
            "certificate with a bad signature",
            "its signature is wrong, or its key is of RSA with fewer than 2048 bits; check none with tls: {insecure: true}",
        ),
        _ => ("certificate not accepted", "check none with tls: {insecure: true}"),
    }
}

/// A server that asked for a certificate is not content with this answer.
fn of_answer(answer: ClientCertificate) -> (&'static str, &'static str) {
    match answer {
        ClientCertificate::Missing => REQUIRED,
        ClientCertificate::Unsuitable => UNSUITABLE,
        ClientCertificate::Shown => REFUSED,
    }
}

/// The name of an alert, and what follows from it.
fn of_alert(alert: AlertDescription, handshake: Handshake) -> (&'static str, &'static str) {
    if handshake.renegotiation {
        return RENEGOTIATION;
    }
    // RFC 5246 §7.4.6: a server that gets no suitable certificate may answer with handshake_failure
    if let Some(answer) = handshake.certificate
        && is_about_certificate(alert)
    {
        return of_answer(answer);
    }
    let way = match alert {
        AlertDescription::ProtocolVersion => "the server speaks no TLS 1.2 or 1.3",
        AlertDescription::UnrecognisedName => {
            "the server knows no such name; say which with tls: {server_name: NAME}"
        }
        AlertDescription::HandshakeFailure if handshake.agreed => {
            return (
                "alert handshake_failure after ServerHello",
                "the server ended the handshake after it had chosen version and cipher; see its log",
            );
        }
        AlertDescription::HandshakeFailure => "it shares no version, cipher or kind of key with this client",
        AlertDescription::CertificateRequired => REQUIRED.1,
        _ => "",
    };
    (alert_name(alert), way)
}

/// Whether a server may say by this alert that it is not content with a client's certificate (RFC 5246 §7.2.2 and §7.4.6,
/// RFC 8446 §4.4.2.4 and §6.2).
fn is_about_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::HandshakeFailure
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError
    )
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::InvalidMessage;

    fn named(error: Error, bytes: &[u8], handshake: Handshake) -> &'static str {
        match failure(&error, bytes, handshake).0 {
            Cause { kind: Failure::Tls, detail: Detail::Named(name) } => name,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn faults_of_tls_have_names() {
        let begun = Handshake::default();
        let expired = Error::InvalidCertificate(CertificateError::Expired);
        assert_eq!(named(expired, b"", begun), "certificate expired");
        let alert = Error::AlertReceived(AlertDescription::HandshakeFailure);
        assert_eq!(named(alert, b"\x15\x03\x03\x00\x02\x02\x28", begun), "alert handshake_failure");
        let plain = || Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(named(plain(), b"HTTP/1.1 400 Bad Request\r\n", begun), "plain HTTP on this port");
        assert_eq!(named(plain(), b"SSH-2.0-OpenSSH_9.2\r\n", begun), "SSH on this port");
        assert_eq!(named(plain(), b"220 smtp ready\r\n", begun), "no TLS on this port");
    }

    #[test]
    fn an_alert_is_read_with_what_came_before_it() {
        let agreed = Handshake { agreed: true, ..Handshake::default() };
        let asked = |answer| Handshake { certificate: Some(answer), ..agreed };
        let alert = |alert, handshake| named(Error::AlertReceived(alert), b"", handshake);
        let failure = AlertDescription::HandshakeFailure;
        assert_eq!(alert(failure, agreed), "alert handshake_failure after ServerHello");
        assert_eq!(alert(failure, asked(ClientCertificate::Missing)), "client certificate required");
        assert_eq!(
            alert(failure, asked(ClientCertificate::Unsuitable)),
            "client key of another kind required"
        );
        let unknown = AlertDescription::UnknownCA;
        assert_eq!(alert(unknown, asked(ClientCertificate::Shown)), "client certificate refused");
        assert_eq!(alert(unknown, agreed), "alert unknown_ca");
        // not about the certificate, whatever was asked for
        let record = AlertDescription::BadRecordMac;
        assert_eq!(alert(record, asked(ClientCertificate::Missing)), "alert bad_record_mac");
        let again = Handshake { renegotiation: true, ..asked(ClientCertificate::Missing) };
        assert_eq!(alert(failure, again), "renegotiation");
    }

    #[test]
    fn no_version_or_cipher_is_said_only_where_that_is_the_fault() {
        let peer = |why| named(Error::PeerIncompatible(why), b"", Handshake::default());
        assert_eq!(peer(PeerIncompatible::ServerDoesNotSupportTls12Or13), "no common TLS version or cipher");
        assert_eq!(peer(PeerIncompatible::IncorrectCertificateTypeExtension), "TLS extension not supported");
    }
}
