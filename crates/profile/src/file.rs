//! Files that profiles and requests name: opened so that what lies there cannot hold the daemon, and is not harmed.

use nix::libc::{O_NOCTTY, O_NOFOLLOW, O_NONBLOCK};
use std::fs::{File, OpenOptions};
use std::io::{self, Error, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Open a file to read it. What is none, such as a FIFO, a terminal or a folder, is refused at once.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(Error::other("it is not a regular file")) }
}

/// All of a file of at most `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    // What it says of its size need not be so: it may grow, and that of a file of the kernel is 0.
    if file.metadata()?.len() > most {
        return Err(Error::other(format!("it has more than {most} bytes")));
    }
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Make a new file, that only its owner may read. What is there already, a link included, is left as it is.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(O_NOFOLLOW).open(path)
}

/// A path that leads to this very file for as long as it is open, for libraries that open files by themselves.
pub fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    #[test]
    fn only_files_are_read_and_only_so_much() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, fifo) = (folder.path().join("file"), folder.path().join("fifo"));
        std::fs::write(&file, "12345").expect("written");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        assert_eq!(read(&file, 5).expect("read"), b"12345");
        // 1 TB that is not there, which would take minutes to read
        let sparse = folder.path().join("sparse");
        File::create(&sparse).and_then(|file| file.set_len(1 << 40)).expect("made");
        for (path, most, why) in [
            (file.as_path(), 4, "more than 4 bytes"),
            (&sparse, 1 << 39, "more than 549755813888 bytes"),
            (&fifo, 5, "not a regular file"),
            (Path::new("/dev/zero"), 5, "not a regular file"),
            (folder.path(), 5, "not a regular file"),
            (Path::new("/nowhere/x"), 5, "No such file"),
        ] {
            let said = read(path, most).expect_err(why).to_string();
            assert!(said.contains(why), "{}: {said}", path.display());
        }
    }

    #[test]
    fn a_new_file_is_the_owners_and_takes_no_others_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mut new = create(&at("new")).expect("made");
        new.write_all(b"mine").expect("written");
        assert_eq!(new.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read(path_of(&new)).expect("by its descriptor"), b"mine");
        std::fs::write(at("old"), "theirs").expect("written");
        symlink(at("old"), at("link")).expect("linked");
        symlink(at("absent"), at("dangling")).expect("linked");
        assert!(Command::new("mkfifo").arg(at("fifo")).status().expect("mkfifo").success());
        for name in ["old", "link", "dangling", "fifo", "new"] {
            assert_eq!(create(&at(name)).expect_err(name).kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read(at("old")).expect("left"), b"theirs");
        assert!(!at("absent").exists());
    }
}
