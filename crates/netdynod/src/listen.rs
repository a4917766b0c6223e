//! The Unix socket and its file.

use anyhow::{Context, Result, bail};
use nix::sys::stat::{Mode, umask};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// The socket's file; removed when the daemon ends, unless another has taken its place.
pub struct SocketFile<'a> {
    path: &'a Path,
    inode: u64,
}

impl Drop for SocketFile<'_> {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(self.path).is_ok_and(|m| m.ino() == self.inode) {
            let _gone = std::fs::remove_file(self.path);
        }
    }
}

/// Listen on `path`, in place of a socket that nobody answers on. Only the owner can connect.
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile<'_>)> {
    if let Some(folder) = path.parent().filter(|f| !f.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    }
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(_) => {
                bail!(
                    "another daemon answers on {}; use it, end it, or choose another --socket",
                    path.display()
                )
            }
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {} // nobody does
            Err(e) => return Err(e).with_context(|| format!("who has {} cannot be seen", path.display())),
        }
        std::fs::remove_file(path)
            .with_context(|| format!("the stale {} cannot be removed", path.display()))?;
    }
    // made with mode 0600 from the start: no moment in which anybody else could connect
    let before = umask(Mode::from_bits_truncate(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    let listener = listener.with_context(|| format!("{} cannot be listened on", path.display()))?;
    let inode = std::fs::symlink_metadata(path).context("socket file")?.ino();
    Ok((listener, SocketFile { path, inode }))
}
