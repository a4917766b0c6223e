//! A certificate authority that lives for one set of certificates: its key is in memory only, and gone when they are made.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How far a clock of another machine may be behind for a new certificate to be valid there.
const BEHIND: Duration = Duration::from_secs(3600);
/// Bytes of the public key by which one authority is told from another.
const SHOWN: usize = 8;

/// A certificate and its key (PEM).
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// The certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
}

/// All that was signed by one authority.
#[derive(Debug, Clone, Serialize)]
pub struct Certificates {
    /// The authority's certificate (PEM).
    pub ca: String,
    /// For who calls: it cannot be a server's.
    pub client: Pair,
    /// For each server by its name: it cannot be a client's.
    pub servers: BTreeMap<String, Pair>,
}

/// Make an authority called `name`, a client's certificate, and one for each of `servers`, valid for this long.
pub fn certificates(name: &str, servers: &[String], valid: Duration) -> Result<Certificates, Error> {
    let key = KeyPair::generate()?;
    let shown: String = key.der_bytes().iter().rev().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let mut ca = params(&format!("netdyno {name} {shown}"), &[], valid)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let pem = ca.self_signed(&key)?.pem();
    let issuer = Issuer::new(ca, key);
    let signed = |name: &str, names: &[String], usage| {
        let key = KeyPair::generate()?;
        let mut params = params(name, names, valid)?;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        Ok::<_, Error>(Pair { cert: params.signed_by(&key, &issuer)?.pem(), key: key.serialize_pem() })
    };
    let servers = servers.iter().map(|one| {
        let pair = signed(one, std::slice::from_ref(one), ExtendedKeyUsagePurpose::ServerAuth)?;
        Ok((one.clone(), pair))
    });
    Ok(Certificates {
        servers: servers.collect::<Result<_, Error>>()?,
        client: signed("netdyno client", &[], ExtendedKeyUsagePurpose::ClientAuth)?,
        ca: pem,
    })
}

fn params(name: &str, names: &[String], valid: Duration) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - BEHIND).into(), (now + valid).into());
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::{FromDer, X509Certificate};

    fn authority(der: &[u8]) -> X509Certificate<'_> {
        X509Certificate::from_der(der).expect("X.509").1
    }

    #[test]
    fn each_certificate_is_for_one_use_and_signed_by_this_authority_alone() {
        let servers = ["lab-1".to_owned(), "lab_2".to_owned()];
        let made = certificates("lab", &servers, Duration::from_secs(60)).expect("made");
        let other = certificates("lab", &servers, Duration::from_secs(60)).expect("made");
        let der = |pem: &str| x509_parser::pem::parse_x509_pem(pem.as_bytes()).expect("PEM").1.contents;
        let (mine, theirs) = (der(&made.ca), der(&other.ca));
        let (mine, theirs) = (authority(&mine), authority(&theirs));
        assert_ne!(mine.subject(), theirs.subject(), "two fleets of one name");
        for (pem, client) in [
            (&made.client.cert, true),
            (&made.servers["lab-1"].cert, false),
            (&made.servers["lab_2"].cert, false),
        ] {
            let bytes = der(pem);
            let one = authority(&bytes);
            assert!(one.validity().is_valid() && !one.is_ca());
            let usage = one.extended_key_usage().expect("readable").expect("there").value;
            assert_eq!((usage.client_auth, usage.server_auth), (client, !client));
            assert_eq!(one.issuer(), mine.subject());
            assert_ne!(one.issuer(), theirs.subject());
        }
    }
}
