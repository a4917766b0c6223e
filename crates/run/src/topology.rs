//! Which logical cores a machine has, which of them are threads of one physical core, and which NUMA node they
//! are on; and which of them workers get that ask for a core, a node, or a neighbour.

use crate::cpu;
use std::collections::BTreeMap;
use std::path::Path;

/// A logical core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Core {
    /// Its number, as in `taskset -c`.
    pub number: usize,
    /// The lowest number among the hyper-threads of its physical core: the same for all of them.
    pub physical: usize,
    /// Its NUMA node.
    pub node: usize,
}

/// The logical cores that a process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    cores: Vec<Core>,
}

/// What a worker wants of the core it runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CoreRequest {
    /// This one.
    pub core: Option<usize>,
    /// One of this NUMA node.
    pub node: Option<usize>,
    /// What is to run on the other hyper-threads.
    pub threads: Threads,
}

/// What a worker wants of the hyper-threads of its physical core.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Threads {
    /// A physical core of its own if there is one; any logical core if not; any core at all as a last resort.
    #[default]
    Any,
    /// No other worker on its physical core.
    Own,
    /// The physical core of the worker before it.
    Shared,
}

/// Why a worker gets no core.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CoreError {
    /// The core is not one that the process may use.
    #[error("core {core} is not one this process may use; it may use {known}")]
    NoCore {
        /// The worker's number.
        worker: usize,
        /// The core.
        core: usize,
        /// The ones that there are.
        known: String,
    },
    /// There is no such node with a core that the process may use.
    #[error("no core of NUMA node {node} is one this process may use; its cores are on {known}")]
    NoNode {
        /// The worker's number.
        worker: usize,
        /// The node.
        node: usize,
        /// The ones that there are.
        known: String,
    },
    /// No physical core is free.
    #[error("worker {worker} wants a physical core of its own, and none is left")]
    NoneOwn {
        /// The worker's number.
        worker: usize,
    },
    /// The physical core of the worker before has no thread to share.
    #[error(
        "worker {worker} wants to share the physical core of the worker before it, which has no other thread free"
    )]
    NoSibling {
        /// The worker's number.
        worker: usize,
    },
}

impl CoreError {
    /// The worker that it is about.
    pub fn worker(&self) -> usize {
        match self {
            Self::NoCore { worker, .. }
            | Self::NoNode { worker, .. }
            | Self::NoneOwn { worker }
            | Self::NoSibling { worker } => *worker,
        }
    }
}

/// A core of this machine for each worker, as it asks; one when none asks.
pub fn worker_cores(requests: &[CoreRequest]) -> Result<Vec<usize>, CoreError> {
    let allowed: Vec<usize> = cpu::cores().into_iter().map(usize::from).collect();
    let one = [CoreRequest::default()];
    Topology::of(&allowed).assign(if requests.is_empty() { &one } else { requests })
}

impl Topology {
    /// Of this machine, as far as `allowed` goes.
    pub fn of(allowed: &[usize]) -> Self {
        let root = Path::new("/sys/devices/system");
        Self::parse(allowed, |file| std::fs::read_to_string(root.join(file)).ok())
    }

    /// From the files of `/sys/devices/system`. Where they are missing, each core is a
    /// physical one, on node 0.
    pub fn parse(allowed: &[usize], read: impl Fn(&str) -> Option<String>) -> Self {
        let mut nodes = BTreeMap::new();
        for node in list(&read("node/online").unwrap_or_default()) {
            let cores = read(&format!("node/node{node}/cpulist")).unwrap_or_default();
            nodes.extend(list(&cores).map(|core| (core, node)));
        }
        let core = |number: &usize| {
            let threads = read(&format!("cpu/cpu{number}/topology/thread_siblings_list")).unwrap_or_default();
            let physical = list(&threads).min().unwrap_or(*number);
            Core { number: *number, physical, node: nodes.get(number).copied().unwrap_or(0) }
        };
        Self { cores: allowed.iter().map(core).collect() }
    }

    /// The cores, in the order they were given.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// A core for each of the requests. Those that name one get it; the others choose in turn from the last on, as
    /// the first cores are where the system's own work is.
    pub fn assign(&self, requests: &[CoreRequest]) -> Result<Vec<usize>, CoreError> {
        let mut given: Vec<Option<Core>> = Vec::new();
        for (worker, request) in requests.iter().enumerate() {
            let named = request.core.map(|core| {
                let known = || core_list(self.cores.iter().map(|core| core.number));
                let found = self.cores.iter().find(|known| known.number == core).copied();
                found.ok_or_else(|| CoreError::NoCore { worker, core, known: known() })
            });
            given.push(named.transpose()?);
        }
        // Workers that want a physical core of their own first: the others can share.
        for own in [true, false] {
            for (worker, request) in requests.iter().enumerate() {
                if given[worker].is_none() && (request.threads == Threads::Own) == own {
                    given[worker] = Some(self.choose(worker, requests, *request, &given)?);
                }
            }
        }
        Ok(given.into_iter().flatten().map(|core| core.number).collect())
    }

    fn choose(
        &self,
        worker: usize,
        requests: &[CoreRequest],
        request: CoreRequest,
        given: &[Option<Core>],
    ) -> Result<Core, CoreError> {
        let near = |core: &&Core| request.node.is_none_or(|node| core.node == node);
        let mut cores = self.cores.iter().rev().filter(near);
        let free = |core: &&Core| given.iter().flatten().all(|other| other.number != core.number);
        // The physical core is free, or used only by the workers that this one asks to be beside.
        let own = |core: &&Core| given.iter().flatten().all(|other| other.physical != core.physical);
        let hermit = |other: usize| requests[other].threads == Threads::Own && other != worker;
        let open = |core: &&Core| {
            let mut others = given.iter().enumerate().filter_map(|(i, other)| Some((i, (*other)?)));
            !others.any(|(i, other)| other.physical == core.physical && hermit(i))
        };
        match request.threads {
            Threads::Shared => {
                let before = worker.checked_sub(1).and_then(|before| given[before]);
                cores
                    .find(|core| free(core) && before.is_some_and(|before| before.physical == core.physical))
                    .copied()
                    .ok_or(CoreError::NoSibling { worker })
            }
            _ if cores.clone().next().is_none() => {
                let nodes: std::collections::BTreeSet<usize> =
                    self.cores.iter().map(|core| core.node).collect();
                Err(CoreError::NoNode {
                    worker,
                    node: request.node.unwrap_or(0),
                    known: core_list(nodes.into_iter()),
                })
            }
            Threads::Own => cores.find(own).copied().ok_or(CoreError::NoneOwn { worker }),
            Threads::Any => {
                let best = cores.clone().find(own);
                let second = || cores.clone().find(|core| free(core) && open(core));
                // More workers than cores: they take turns.
                let last = || cores.clone().find(open).or_else(|| cores.clone().next());
                best.or_else(second).or_else(last).copied().ok_or(CoreError::NoneOwn { worker })
            }
        }
    }
}

fn core_list(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(", ")
}

/// The numbers in a list of the kernel's, such as `0-3,8`.
fn list(text: &str) -> impl Iterator<Item = usize> + '_ {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of 4 cores, each a node, with hyper-threads: as a common server numbers them.
    fn server(file: &str) -> Option<String> {
        Some(match file {
            "node/online" => "0-1\n".into(),
            "node/node0/cpulist" => "0-3,8-11\n".into(),
            "node/node1/cpulist" => "4-7,12-15\n".into(),
            _ => {
                let core: usize = file.strip_prefix("cpu/cpu")?.split_once('/')?.0.parse().ok()?;
                assert!(file.ends_with("/topology/thread_siblings_list"), "{file}");
                format!("{},{}\n", core % 8, core % 8 + 8)
            }
        })
    }

    /// One socket whose threads have neighbouring numbers, and no NUMA: as a laptop or a cloud machine.
    fn laptop(file: &str) -> Option<String> {
        let core: usize = file.strip_prefix("cpu/cpu")?.split_once('/')?.0.parse().ok()?;
        Some(format!("{}-{}\n", core / 2 * 2, core / 2 * 2 + 1))
    }

    fn all(cores: usize, read: fn(&str) -> Option<String>) -> Topology {
        Topology::parse(&(0..cores).collect::<Vec<_>>(), read)
    }

    const ANY: CoreRequest = CoreRequest { core: None, node: None, threads: Threads::Any };
    const OWN: CoreRequest = CoreRequest { threads: Threads::Own, ..ANY };
    const SHARED: CoreRequest = CoreRequest { threads: Threads::Shared, ..ANY };

    fn on(core: usize) -> CoreRequest {
        CoreRequest { core: Some(core), ..ANY }
    }

    fn of(node: usize) -> CoreRequest {
        CoreRequest { node: Some(node), ..ANY }
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let server = all(16, server);
        assert_eq!(server.cores()[3], Core { number: 3, physical: 3, node: 0 });
        assert_eq!(server.cores()[13], Core { number: 13, physical: 5, node: 1 });
        assert_eq!(all(4, laptop).cores()[3], Core { number: 3, physical: 2, node: 0 });
        // A kernel without any of the files.
        assert_eq!(all(2, |_| None).cores()[1], Core { number: 1, physical: 1, node: 0 });
        assert_eq!(list("0-2,5,7-8\n").collect::<Vec<_>>(), [0, 1, 2, 5, 7, 8]);
        assert_eq!(list("\n").count() + list("x-3").count(), 0);
        // This machine's, whatever it is.
        assert_eq!(Topology::of(&[0]).cores().len(), 1);
    }

    #[test]
    fn workers_get_physical_cores_of_their_own_as_long_as_there_are() {
        let (server, laptop) = (all(16, server), all(4, laptop));
        assert_eq!(server.assign(&[ANY; 3]), Ok(vec![15, 14, 13]));
        assert_eq!(laptop.assign(&[ANY; 2]), Ok(vec![3, 1]));
        // Then threads, then turns.
        assert_eq!(laptop.assign(&[ANY; 5]), Ok(vec![3, 1, 2, 0, 3]));
        assert_eq!(laptop.assign(&[OWN; 2]), Ok(vec![3, 1]));
        assert_eq!(laptop.assign(&[OWN; 3]), Err(CoreError::NoneOwn { worker: 2 }));
        // A worker that wants a core for itself gets it first, and shares it with none that does not ask to.
        assert_eq!(laptop.assign(&[ANY, ANY, OWN]), Ok(vec![1, 0, 3]));
    }

    #[test]
    fn a_named_core_is_given_before_others_choose() {
        let laptop = all(4, laptop);
        assert_eq!(laptop.assign(&[ANY, on(3)]), Ok(vec![1, 3]));
        assert_eq!(laptop.assign(&[on(0), on(1)]), Ok(vec![0, 1]));
        let why = laptop.assign(&[ANY, on(9)]).unwrap_err();
        assert_eq!(
            (why.worker(), why.to_string().contains("core 9") && why.to_string().contains("0, 1, 2, 3")),
            (1, true)
        );
        // Only what the process may use counts.
        let half = Topology::parse(&[0, 2], super::tests::laptop);
        assert_eq!(half.assign(&[ANY; 2]), Ok(vec![2, 0]));
        assert!(half.assign(&[on(1)]).is_err());
    }

    #[test]
    fn a_node_and_a_neighbour_can_be_asked_for() {
        let server = all(16, server);
        assert_eq!(server.assign(&[of(0), of(0), of(1)]), Ok(vec![11, 10, 15]));
        assert_eq!(server.assign(&[of(0), SHARED, of(1), SHARED]), Ok(vec![11, 3, 15, 7]));
        assert_eq!(server.assign(&[on(2), SHARED]), Ok(vec![2, 10]));
        // One that others share: it is not alone, but by its neighbour's request.
        assert_eq!(server.assign(&[OWN, SHARED, ANY]), Ok(vec![15, 7, 14]));
        assert_eq!(server.assign(&[SHARED]), Err(CoreError::NoSibling { worker: 0 }));
        assert_eq!(server.assign(&[ANY, SHARED, SHARED]), Err(CoreError::NoSibling { worker: 2 }));
        assert_eq!(all(2, |_| None).assign(&[ANY, SHARED]), Err(CoreError::NoSibling { worker: 1 }));
        let why = server.assign(&[of(7)]).unwrap_err();
        assert_eq!((why.worker(), why.to_string().ends_with("on 0, 1")), (0, true));
    }
}
