//! The token that opens TCP.

use anyhow::{Context, Result, ensure};
use std::fmt;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use subtle::ConstantTimeEq;

/// Bytes of the file that are read.
const LONGEST: u64 = 4096;

/// A secret of at least 16 characters.
pub struct Token(String);

impl Token {
    /// Read it from its file.
    pub fn read(path: &Path) -> Result<Self> {
        let at = || format!("token file {}", path.display());
        let mut text = String::new();
        std::fs::File::open(path)
            .with_context(at)?
            .take(LONGEST)
            .read_to_string(&mut text)
            .with_context(at)?;
        if std::fs::metadata(path).with_context(at)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!("others may read {}: chmod 600 it", path.display());
        }
        let token = text.trim().to_owned();
        ensure!(
            token.len() >= 16,
            "the token in {} is shorter than 16 characters; make one with: openssl rand -hex 32",
            path.display()
        );
        Ok(Self(token))
    }

    /// Whether `shown` is it, in a time that does not tell how much of it was right.
    pub fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "  0123456789abcdef\n").unwrap();
        let token = Token::read(&path).unwrap();
        assert!(token.is("0123456789abcdef"));
        for wrong in ["", "0123456789abcdeg", "0123456789abcde", "0123456789abcdef ", "x123456789abcdef"] {
            assert!(!token.is(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{token:?}"), "Token(…)");
    }

    #[test]
    fn a_short_token_is_refused_and_said_how_to_make_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "0123456789abcde\n").unwrap();
        assert!(Token::read(&path).unwrap_err().to_string().contains("openssl rand"));
    }
}
