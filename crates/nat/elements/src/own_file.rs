//! Files that a NAT writes over: only its own, whatever stands at their path.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Bytes of a file that are looked at to know it.
const HEAD: u64 = 256;

/// Open a regular file to read. A link is not followed, and nobody is waited for, as at a FIFO.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|why| match why.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            io::Error::other("it is a symbolic link")
        }
        _ => why,
    })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
}

/// Read all of a regular file that has `most` bytes at most.
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let (mut text, file) = (Vec::new(), open(path)?);
    file.take(most + 1).read_to_end(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(text)
}

/// Whether there is nothing at a path, or a file that was written by a NAT: one that has `mark` in its head, or that is empty. Else
/// what stands there.
pub(crate) fn may_replace(path: &Path, mark: &[u8]) -> io::Result<()> {
    let file = match open(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    if head.is_empty() || head.windows(mark.len()).any(|part| part == mark) {
        return Ok(());
    }
    Err(io::Error::other("another program's file stands there"))
}

/// Remove a file that was left by a NAT, if there is one.
pub(crate) fn remove(path: &Path, mark: &[u8]) -> io::Result<()> {
    may_replace(path, mark)?;
    match std::fs::remove_file(path) {
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_files_of_a_nat_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("own"), b"{\"format\": \"mark\"}").unwrap();
        std::fs::write(at("empty"), b"").unwrap();
        std::fs::write(at("other"), b"somebody's letters").unwrap();
        symlink(at("own"), at("link")).unwrap();
        symlink(at("absent"), at("dangling")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for name in ["none", "empty", "own"] {
            may_replace(&at(name), b"mark").unwrap();
        }
        for name in ["other", "link", "dangling", "folder", "fifo", "socket"] {
            may_replace(&at(name), b"mark").expect_err(name);
            remove(&at(name), b"mark").expect_err(name);
            assert!(std::fs::symlink_metadata(at(name)).is_ok(), "{name} is there");
            if name != "other" {
                read(&at(name), 100).expect_err(name);
            }
        }
        assert_eq!(read(&at("own"), 18).unwrap().len(), 18);
        assert!(read(&at("own"), 17).unwrap_err().to_string().contains("longer than 17 bytes"));
        remove(&at("own"), b"mark").unwrap();
        assert!(!at("own").exists());
    }
}
