//! Memory that both ends have mapped.

use crate::layout;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::stat::fstat;
use nix::sys::statfs::{FsType, fstatfs};
use nix::unistd::ftruncate;
use std::ffi::c_void;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

/// The file system of huge pages (`HUGETLBFS_MAGIC`).
const HUGE_PAGES: FsType = FsType(0x9584_58f6);

/// A mapped region; unmapped when it goes.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory shared with another process by design; whoever uses it does so by atomic instructions, or copies
// bytes that he does not rely on.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// A new one of zeros, in memory already, and the file to send to the other end. It cannot shrink.
    pub(crate) fn create(len: u64) -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("memif region 0", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, i64::try_from(len).map_err(io::Error::other)?)?;
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK))?;
        let region = Self::map_all(&file, len, MapFlags::MAP_POPULATE)?;
        Ok((region, file))
    }

    /// One that the other end made. It must be unable to shrink: else its memory could go away while it is used. So could
    /// huge pages: who punches a hole gives them to others, and there may be none when they are touched again.
    pub(crate) fn map(file: BorrowedFd<'_>, len: u64) -> Result<Self, &'static str> {
        if len == 0 || len > layout::MOST {
            return Err("region size out of range");
        }
        let seals = fcntl(file, FcntlArg::F_GET_SEALS).map_err(|_| "region is no memory file")?;
        if seals & SealFlag::F_SEAL_SHRINK.bits() == 0 {
            return Err("region is not sealed against shrinking");
        }
        if fstatfs(file).map_err(|_| "region is no memory file")?.filesystem_type() == HUGE_PAGES {
            return Err("region is in huge pages");
        }
        let size = fstat(file).map_err(|_| "region is no memory file")?.st_size;
        if u64::try_from(size).map_or(true, |size| size < len) {
            return Err("region is larger than its file");
        }
        Self::map_all(file, len, MapFlags::empty()).map_err(|_| "region cannot be mapped")
    }

    fn map_all(file: impl std::os::fd::AsFd, len: u64, more: MapFlags) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let Some(bytes) = NonZeroUsize::new(len) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let base = unsafe { mmap(None, bytes, access, MapFlags::MAP_SHARED | more, file, 0) }?;
        Ok(Self { base: base.cast(), len })
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `length` bytes at `offset`, if the region has them.
    #[inline]
    pub(crate) fn at(&self, offset: u32, length: u32) -> Option<NonNull<u8>> {
        if u64::from(offset) + u64::from(length) > self.len as u64 {
            return None;
        }
        // SAFETY: it is within the mapping, or just past its end.
        Some(unsafe { self.base.add(offset as usize) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by us, so long; its owner goes, and nobody has an address in it without him.
        let _ = unsafe { munmap(self.base.cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn one_made_here_can_be_mapped_there() {
        let (here, file) = Region::create(8192).unwrap();
        let there = Region::map(file.as_fd(), 8192).unwrap();
        // SAFETY: both mappings are 8192 bytes long.
        unsafe { here.base().add(5000).write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { there.base().add(5000).read_volatile() }, 7);
        assert!(ftruncate(&file, 4096).is_err());
        assert!(there.at(8192, 0).is_some());
        assert!(there.at(8191, 1).is_some());
        assert!(there.at(8191, 2).is_none());
        assert!(there.at(u32::MAX, u32::MAX).is_none());
    }

    #[test]
    fn what_may_go_away_is_refused() {
        let (_, file) = Region::create(4096).unwrap();
        assert!(Region::map(file.as_fd(), 4097).is_err());
        assert!(Region::map(file.as_fd(), 0).is_err());
        assert!(Region::map(file.as_fd(), u64::MAX).is_err());
        let loose = memfd_create("loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        ftruncate(&loose, 4096).unwrap();
        assert!(Region::map(loose.as_fd(), 4096).is_err());
        // Nothing is reserved before it is mapped, so that no huge page has to be there.
        let huge = memfd_create("huge", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB).unwrap();
        ftruncate(&huge, 1 << 30).unwrap();
        fcntl(&huge, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        assert_eq!(Region::map(huge.as_fd(), 4096).err(), Some("region is in huge pages"));
        let disk = tempfile::tempfile().unwrap();
        disk.set_len(4096).unwrap();
        assert!(Region::map(disk.as_fd(), 4096).is_err());
    }
}
