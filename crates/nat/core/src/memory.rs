//! Large arrays, zeroed, in pages of 2 MB where the kernel gives them: a random access then misses the cache, and not the TLB too.

use crate::cpu::{MappedMemory, Plain};
use memmap2::Advice;

/// A fixed number of `T`s, which begin as zeros. What is neither touched nor populated takes no memory.
#[derive(Debug)]
pub struct Pages<T>(MappedMemory<T>);

impl<T: Plain> Pages<T> {
    /// Room for `len` of them.
    pub fn new(len: usize) -> std::io::Result<Self> {
        let mapped = MappedMemory::new(len)?;
        #[cfg(target_os = "linux")]
        {
            // A kernel without transparent huge pages says no; small pages are right, and slower.
            let _refused = mapped.map().advise(Advice::HugePage);
        }
        Ok(Self(mapped))
    }

    /// All of them.
    #[inline(always)]
    pub fn get(&self) -> &[T] {
        self.0.get()
    }

    /// All of them, to be changed.
    #[inline(always)]
    pub fn get_mut(&mut self) -> &mut [T] {
        self.0.get_mut()
    }

    /// Bytes that it takes when all is touched.
    pub fn size(&self) -> usize {
        self.0.map().len()
    }
}

/// Memory that can be taken before it is used.
pub trait Memory {
    /// Bytes of it.
    fn len(&self) -> usize;

    /// Take `bytes` of it from `from` on, on the NUMA node of who asks.
    fn populate(&self, from: usize, bytes: usize);
}

impl<T: Plain> Memory for Pages<T> {
    fn len(&self) -> usize {
        self.size()
    }

    fn populate(&self, from: usize, bytes: usize) {
        #[cfg(target_os = "linux")]
        {
            // Before Linux 5.14, and where there is none, pages come at their first use.
            let _refused = self.0.map().advise_range(Advice::PopulateWrite, from, bytes);
        }
        #[cfg(not(target_os = "linux"))]
        let _at_first_use = (from, bytes);
    }
}

/// Take the next `bytes` of all these, of which `taken` are there. How many are there then.
pub fn populate(all: &[&dyn Memory], taken: usize, bytes: usize) -> usize {
    let (mut from, mut left) = (taken, bytes);
    for memory in all {
        let some = left.min(memory.len().saturating_sub(from));
        if some > 0 {
            memory.populate(from, some);
        }
        from = (from + some).saturating_sub(memory.len());
        left -= some;
    }
    taken + bytes - left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_begin_as_zeros_and_keep_what_is_written() {
        let mut pages = Pages::<u64>::new(1_000_000).unwrap();
        assert!(pages.get().iter().all(|value| *value == 0));
        pages.get_mut()[999_999] = 7;
        assert_eq!((pages.get().len(), pages.get()[999_999], pages.size()), (1_000_000, 7, 8_000_000));
        assert!(Pages::<u64>::new(0).unwrap().get().is_empty());
    }

    #[test]
    fn memory_is_taken_piece_by_piece_once() {
        #[derive(Default)]
        struct Noted(usize, std::cell::RefCell<Vec<(usize, usize)>>);
        impl Memory for Noted {
            fn len(&self) -> usize {
                self.0
            }
            fn populate(&self, from: usize, bytes: usize) {
                self.1.borrow_mut().push((from, bytes));
            }
        }
        let noted = [10, 0, 25, 3].map(|len| Noted(len, Default::default()));
        let all: Vec<&dyn Memory> = noted.iter().map(|one| one as &dyn Memory).collect();
        let mut taken = 0;
        let steps: Vec<usize> = std::iter::repeat_with(|| {
            taken = populate(&all, taken, 8);
            taken
        })
        .take(6)
        .collect();
        assert_eq!(steps, [8, 16, 24, 32, 38, 38]);
        let [first, none, second, last] = noted.map(|one| one.1.into_inner());
        assert_eq!((first, none), (vec![(0, 8), (8, 2)], Vec::new()));
        assert_eq!((second, last), (vec![(0, 6), (6, 8), (14, 8), (22, 3)], vec![(0, 3)]));
    }
}
