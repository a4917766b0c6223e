//! `netdynod certificates`: those of one fleet.

use run::SetupError;
use run::tls::certificates;
use serde::Deserialize;
use std::time::Duration;
use system::standard_input::{self, print};

const HELP: &str = "See `netdyno fleet certificates --help`";

/// Whom to make certificates for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateRequest {
    /// Name of the fleet.
    name: String,
    /// Names of its agents, as who calls them expects.
    servers: Vec<String>,
    /// How long they are valid, s.
    valid: u32,
}

/// Make them.
pub fn run() -> Result<(), SetupError> {
    let (request, _): (CertificateRequest, _) = standard_input::settings("certificates", HELP)?;
    let valid = Duration::from_secs(request.valid.into());
    let made = certificates(&request.name, &request.servers, valid).map_err(|e| {
        SetupError::new("ND-104-91", "certificates", format!("no certificate can be made ({e})"), HELP)
    })?;
    print(&serde_json::json!(made));
    Ok(())
}
