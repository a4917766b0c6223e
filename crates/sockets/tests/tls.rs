//! TLS against a server of its own certificate: trusted, not trusted, not looked at, and not TLS at all.

use crate::lab::{profile, run, total};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use tempfile::TempDir;

/// A web server over TLS, and the file with the certificate that it shows.
fn server() -> (SocketAddr, TempDir, String) {
    server_until(2100)
}

/// The same, with a certificate that is valid until the end of a year.
fn server_until(year: i32) -> (SocketAddr, TempDir, String) {
    server_with(year, rustls::ALL_VERSIONS, |_| {})
}

/// The same, with some versions of TLS, and a configuration that was changed.
fn server_with(
    year: i32,
    versions: &[&'static SupportedProtocolVersion],
    change: impl FnOnce(&mut ServerConfig),
) -> (SocketAddr, TempDir, String) {
    let (config, folder, ca) = configured(year, versions, change);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("session");
            std::thread::spawn(move || answer(StreamOwned::new(session, stream)));
        }
    });
    (address, folder, ca)
}

/// What such a server is configured with.
fn configured(
    year: i32,
    versions: &[&'static SupportedProtocolVersion],
    change: impl FnOnce(&mut ServerConfig),
) -> (Arc<ServerConfig>, TempDir, String) {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(year, 12, 31);
    let signing_key = rcgen::KeyPair::generate().expect("a key");
    let cert = params.self_signed(&signing_key).expect("a certificate");
    let made = rcgen::CertifiedKey { cert, signing_key };
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, made.cert.pem()).expect("written");
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .expect("its own certificate");
    change(&mut config);
    let ca = ca.to_string_lossy().into_owned();
    (Arc::new(config), folder, ca)
}

fn answer(stream: StreamOwned<ServerConnection, std::net::TcpStream>) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0;
    while stream.read_line(&mut line).is_ok_and(|n| n > 0) {
        if let Some(bytes) = line.strip_prefix("Content-Length: ") {
            length = bytes.trim().parse().expect("a number");
        }
        if line == "\r\n" {
            let mut body = vec![0; std::mem::take(&mut length)];
            if stream.read_exact(&mut body).is_err() || body.iter().any(|byte| *byte != b'y') {
                return;
            }
            // larger than one TLS record, so that records have to be joined
            let head = b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n";
            let out = stream.get_mut();
            if out.write_all(head).and_then(|()| out.write_all(&[b'x'; 40_000])).is_err() {
                return;
            }
        }
        line.clear();
    }
}

fn group(address: SocketAddr, tls: &Value) -> Value {
    json!([{"name": "w", "target": format!("https://{address}/"), "devices": 4, "tls": tls,
        "model": {"http": {"requests": 5}}, "load": {"closed": {"flow_interval": "10ms"}}}])
}

#[test]
fn a_trusted_server_is_spoken_to() {
    let (address, _folder, ca) = server();
    let (result, _) = run(&profile(group(address, &json!({"ca": ca, "server_name": "localhost"}))));
    let sent = total(&result, "messages_sent");
    assert!(sent >= 20, "{:?}", result.groups[0].errors);
    assert_eq!(total(&result, "messages_delivered"), sent, "{:?}", result.groups[0].errors);
    assert_eq!(total(&result, "flows_failed"), 0);
    assert!(result.groups[0].delays["connect"].count > 0);
}

/// With TLS 1.2 and no session to resume, the server's last flight needs no reply: nothing but that flight shows that
/// the handshake is over.
#[test]
fn a_handshake_ends_with_whatever_flight_is_the_last() {
    let ticketer = || rustls::crypto::ring::Ticketer::new().expect("random bytes");
    for version in [&TLS12, &TLS13] {
        for sessions in ["none", "ids", "tickets"] {
            let (address, _folder, ca) = server_with(2100, &[version], |config| {
                config.send_tls13_tickets = if sessions == "none" { 0 } else { 2 };
                match sessions {
                    "none" => config.session_storage = Arc::new(NoServerSessionStorage {}),
                    "tickets" => config.ticketer = ticketer(),
                    _ => {}
                }
            });
            let (result, _) = run(&profile(group(address, &json!({"ca": ca, "server_name": "localhost"}))));
            let (sent, group) = (total(&result, "messages_sent"), &result.groups[0]);
            assert!(sent > 0, "{version:?} {sessions}: {:?}", group.errors);
            assert_eq!(
                total(&result, "messages_delivered"),
                sent,
                "{version:?} {sessions}: {:?}",
                group.errors
            );
            assert_eq!(total(&result, "flows_failed"), 0, "{version:?} {sessions}: {:?}", group.errors);
        }
    }
}

#[test]
fn a_server_that_waits_for_the_other_side_to_close_first_has_closed() {
    let (config, _folder, _) = configured(2100, rustls::ALL_VERSIONS, |_| {});
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut session = ServerConnection::new(Arc::clone(&config)).expect("session");
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let asked = rustls::Stream::new(&mut session, &mut stream).read(&mut request);
                // the end of the body and the close_notify in one segment, as `openssl s_server -www` sends them
                session.writer().write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").expect("room");
                session.send_close_notify();
                let mut records = Vec::new();
                while session.wants_write() {
                    session.write_tls(&mut records).expect("room");
                }
                if asked.is_ok_and(|n| n > 0) && stream.write_all(&records).is_ok() {
                    let _until_the_other_side_closes = stream.read(&mut request);
                }
            });
        }
    });
    let (result, _) = run(&profile(group(address, &json!({"insecure": true}))));
    let (sent, group) = (total(&result, "messages_sent"), &result.groups[0]);
    assert!(sent > 0);
    assert_eq!(total(&result, "messages_delivered"), sent, "{:?}", group.errors);
}

#[test]
fn a_message_may_be_larger_than_what_a_session_keeps() {
    let (address, _folder, _) = server();
    let mut large = group(address, &json!({"insecure": true}));
    large[0]["model"]["http"] = json!({"requests": 2, "method": "POST", "body": "y".repeat(300_000)});
    let (result, _) = run(&profile(large));
    let sent = total(&result, "messages_sent");
    assert!(sent >= 8, "{:?}", result.groups[0].errors);
    assert_eq!(total(&result, "messages_delivered"), sent, "{:?}", result.groups[0].errors);
}

#[test]
fn a_stranger_is_refused_unless_nobody_looks() {
    let (address, _folder, ca) = server();
    let (wrong_name, _) = run(&profile(group(address, &json!({"ca": ca, "server_name": "example.test"}))));
    assert_eq!(total(&wrong_name, "messages_sent"), 0);
    assert_eq!(wrong_name.groups[0].errors[0].kind, "tls");
    says(&wrong_name, "server_name: NAME");
    let (insecure, _) = run(&profile(group(address, &json!({"insecure": true}))));
    assert_eq!(total(&insecure, "flows_failed"), 0, "{:?}", insecure.groups[0].errors);
    assert!(total(&insecure, "messages_delivered") >= 20);
}

/// What the first failure looked like says this.
fn says(result: &run::result::TrialResult, what: &str) {
    let error = &result.groups[0].errors[0];
    assert!(error.kind == "tls" && error.example.as_deref().is_some_and(|e| e.contains(what)), "{error:?}");
}

#[test]
fn a_certificate_that_is_not_trusted_is_called_by_its_fault() {
    let (address, _folder, _) = server();
    let mut other = rcgen::CertificateParams::new(vec!["other".to_owned()]).expect("a name");
    other.distinguished_name.push(rcgen::DnType::CommonName, "another CA");
    let stranger = other.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("a certificate");
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("other.pem");
    std::fs::write(&ca, stranger.pem()).expect("written");
    let tls = json!({"ca": ca.to_string_lossy(), "server_name": "localhost"});
    let (unknown, _) = run(&profile(group(address, &tls)));
    says(&unknown, "UnknownIssuer");
    says(&unknown, "tls: {ca: FILE}");
    let (address, _folder, ca) = server_until(2020);
    let (expired, _) = run(&profile(group(address, &json!({"ca": ca, "server_name": "localhost"}))));
    says(&expired, "has expired");
}

#[test]
fn a_server_without_tls_is_a_tls_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _gone = stream.write_all(b"220 smtp.example.test ready\r\n");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    });
    let (result, _) = run(&profile(group(address, &json!({"insecure": true}))));
    assert!(total(&result, "flows_failed") >= 4);
    says(&result, "is there a server with TLS on this port?");
}

/// What TLS has made records of waits as plain text does: with a limit.
#[test]
fn a_server_that_takes_nothing_does_not_fill_the_memory() {
    let (config, _folder, ca) = configured(2100, rustls::ALL_VERSIONS, |_| {});
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream =
                StreamOwned::new(ServerConnection::new(Arc::clone(&config)).expect("session"), stream);
            std::thread::spawn(move || {
                let _gone = stream.read(&mut [0; 4096]);
                let _gone = stream.write_all(b"\x20\x02\x00\x00").and_then(|()| stream.flush());
                std::thread::sleep(std::time::Duration::from_secs(20));
            });
        }
    });
    let mut long = profile(json!([{"name": "m", "target": format!("mqtts://{address}"), "devices": 1,
        "tls": {"ca": ca, "server_name": "localhost"},
        "model": {"mqtt": {"qos": 0, "count": 0, "interval": "1ms", "size": "100kB"}}}]));
    // what may wait here, and what the two sockets take, is 40 MB at most: 400 messages
    long["phases"]["measure"] = json!("4s");
    let (result, _) = run(&long);
    let group = &result.groups[0];
    let error = group.errors.iter().find(|e| e.kind == "timeout");
    let error = error.unwrap_or_else(|| panic!("{:?}, {}", group.errors, group.total));
    assert!(error.example.as_ref().is_some_and(|e| e.contains("does not read")), "{error:?}");
}
