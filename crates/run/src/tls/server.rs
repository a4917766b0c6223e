//! TLS of a server: its certificate, whom it asks for one, and whether sessions are resumed.

use super::{Problem, identity, pem_certificates, unusable};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{Error, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::Deserialize;
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::time::ASN1Time;

/// Years of the validity of a certificate that is made.
const YEARS: (i32, i32) = (2000, 2100);

/// TLS settings of a server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerTls {
    /// File with the certificate and those of the CAs between (PEM).
    #[serde(default)]
    pub cert: Option<String>,
    /// File with the key of `cert` (PEM, without a passphrase). Default: the file of `cert`.
    #[serde(default)]
    pub key: Option<String>,
    /// Make a key and a certificate for the server's address, in place of `cert`.
    #[serde(default)]
    pub self_signed: bool,
    /// File with the CA certificates (PEM) that sign clients' certificates. With it, each client needs one.
    #[serde(default)]
    pub client_ca: Option<String>,
    /// Resume sessions, by tickets (TLS 1.2 and 1.3) and session IDs (TLS 1.2).
    #[serde(default = "resumes")]
    pub resumption: bool,
}

fn resumes() -> bool {
    true
}

/// A server's TLS configuration.
#[derive(Debug, Clone)]
pub struct ServerIdentity {
    /// Shared by all connections, and with it ticket keys and sessions.
    pub config: Arc<ServerConfig>,
    /// The certificate that was made (PEM), for clients to trust.
    pub made: Option<String>,
}

impl ServerTls {
    /// Read the files and build the configuration. `address` is the server's, `alpn` the protocol that clients may name (RFC
    /// 7301); without it what they name is ignored.
    pub fn build(&self, address: IpAddr, alpn: Option<&str>) -> Result<ServerIdentity, Problem> {
        let provider = Arc::new(ring::default_provider());
        let (own, made) = match (&self.cert, self.self_signed) {
            (Some(cert), false) => (read(cert, self.key.as_deref(), &provider)?, None),
            (None, true) if self.key.is_none() => {
                let (own, pem) = make(address, &provider).map_err(|e| {
                    ("self_signed", format!("no certificate can be made ({e})"), String::new())
                })?;
                (own, Some(pem))
            }
            (None, false) => return Err(cert_without_key("key", "there is no certificate")),
            _ => return Err(cert_without_key("self_signed", "there is a certificate already")),
        };
        let wrong = |e: Error| ("cert", format!("TLS cannot be set up ({e})"), String::new());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(wrong)?;
        let builder = match &self.client_ca {
            Some(path) => builder.with_client_cert_verifier(client_verifier(path, &provider)?),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
        config.alpn_protocols = alpn.into_iter().map(|name| name.as_bytes().to_vec()).collect();
        if self.resumption {
            config.ticketer = ring::Ticketer::new().map_err(wrong)?;
        } else {
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(ServerIdentity { config: Arc::new(config), made })
    }
}

fn cert_without_key(at: &'static str, what: &str) -> Problem {
    (at, what.to_owned(), "Name a certificate and its key, or have one made: one of both".to_owned())
}

/// The certificate of a file, which clients could accept today.
fn read(cert: &str, key: Option<&str>, provider: &CryptoProvider) -> Result<CertifiedKey, Problem> {
    let own = identity::certified(cert, key, provider)?;
    let first = own.cert.first().map(AsRef::as_ref).unwrap_or_default();
    let (_, parsed) = X509Certificate::from_der(first).map_err(|e| {
        let fix = "Give a PEM file with the certificate";
        ("cert", format!("{cert:?} cannot be used ({e})"), fix.to_owned())
    })?;
    let (validity, now) = (parsed.validity(), ASN1Time::now());
    let unfit = |what: String| Err(("cert", format!("{cert:?} {what}"), "Renew it".to_owned()));
    if now > validity.not_after {
        return unfit(format!("has expired: it was valid until {}", validity.not_after));
    }
    if now < validity.not_before {
        return unfit(format!("is not valid before {}", validity.not_before));
    }
    Ok(own)
}

/// Takes clients with a certificate of these CAs, and no others.
fn client_verifier(
    path: &str,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, Problem> {
    let of_clients = |(_, what, fix): Problem| ("client_ca", what, fix);
    let mut store = RootCertStore::empty();
    for certificate in pem_certificates(path).map_err(of_clients)? {
        store.add(certificate).map_err(|e| of_clients(unusable(path, &e.to_string())))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), Arc::clone(provider));
    verifier.build().map_err(|e| of_clients(unusable(path, &e.to_string())))
}

/// A new key and its certificate, self-signed, also as PEM.
fn make(address: IpAddr, provider: &CryptoProvider) -> Result<(CertifiedKey, String), String> {
    let failed = |e: rcgen::Error| e.to_string();
    let mut names = vec![address.to_string()];
    if address.is_loopback() || address.is_unspecified() {
        names.extend(["localhost", "127.0.0.1", "::1"].map(str::to_owned));
        names.sort_unstable();
        names.dedup();
    }
    let mut params = rcgen::CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, format!("netdyno serve {address}"));
    params.not_before = rcgen::date_time_ymd(YEARS.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(YEARS.1, 1, 1);
    let key = rcgen::KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = provider.key_provider.load_private_key(der).map_err(|e| e.to_string())?;
    let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
    Ok((CertifiedKey::new(chain, signing), certificate.pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ServerTls {
        ServerTls { cert: None, key: None, self_signed: false, client_ca: None, resumption: true }
    }

    fn fault(tls: &ServerTls) -> (&'static str, String) {
        let (at, what, fix) = tls.build("127.0.0.1".parse().expect("an address"), None).expect_err("a fault");
        assert!(!fix.is_empty());
        (at, what)
    }

    #[test]
    fn each_fault_is_named_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let made = |name: &str, years: (i32, i32)| {
            let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
            params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
            params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
            let key = rcgen::KeyPair::generate().expect("a key");
            let pem = params.self_signed(&key).expect("a certificate").pem();
            std::fs::write(path(&format!("{name}.pem")), pem).expect("written");
            std::fs::write(path(&format!("{name}.key")), key.serialize_pem()).expect("written");
        };
        made("good", (2000, 2100));
        made("other", (2000, 2100));
        made("old", (2000, 2001));
        made("early", (2090, 2100));
        let with =
            |cert: &str, key: &str| ServerTls { cert: Some(path(cert)), key: Some(path(key)), ..settings() };
        let address = "127.0.0.1".parse().expect("an address");
        with("good.pem", "good.key").build(address, Some("http/1.1")).expect("a pair");
        for (tls, at, words) in [
            (with("good.pem", "other.key"), "key", "does not fit"),
            (with("good.key", "good.key"), "cert", "no certificate in it"),
            (with("good.pem", "good.pem"), "key", "no key in it"),
            (with("good.pem", "missing"), "key", "No such file"),
            (with("old.pem", "old.key"), "cert", "has expired"),
            (with("early.pem", "early.key"), "cert", "is not valid before"),
            (settings(), "key", "no certificate"),
            (ServerTls { self_signed: true, ..with("good.pem", "good.key") }, "self_signed", "already"),
            (
                ServerTls { client_ca: Some(path("good.key")), ..with("good.pem", "good.key") },
                "client_ca",
                "no certificate in it",
            ),
        ] {
            let (place, what) = fault(&tls);
            assert_eq!(place, at, "{what}");
            assert!(what.contains(words), "{what}");
        }
    }

    #[test]
    fn a_certificate_is_made_for_the_address() {
        let tls = ServerTls { self_signed: true, ..settings() };
        let made = tls.build("10.0.0.2".parse().expect("an address"), None).expect("made");
        let pem = made.made.expect("a certificate");
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM");
        let parsed = pem.parse_x509().expect("X.509");
        assert!(parsed.validity().is_valid());
        let names = parsed.subject_alternative_name().expect("readable").expect("names");
        assert!(format!("{:?}", names.value.general_names).contains("IPAddress([10, 0, 0, 2])"));
    }
}
