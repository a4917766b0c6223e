//! Tables of values for templates: `{users.name}` is a cell of the column `name` of the table `users`.

use crate::problem::{Problem, choices, closest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Choice of the table row of a message. All places of one message that name a table take the same row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RowPick {
    /// Row `device` of the table, modulo its length: each device keeps its row.
    #[default]
    Device,
    /// Row `device + seq`: each message of a device takes the next row.
    Message,
    /// A row drawn for each message; the same ones in each run with this seed.
    Random(u64),
}

/// The cells of one column, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Column {
    bytes: Vec<u8>,
    /// Where each cell ends.
    ends: Vec<u32>,
}

impl Column {
    /// Append a cell; `false`: the column has no room for it.
    pub fn push(&mut self, cell: &[u8]) -> bool {
        let Ok(end) = u32::try_from(self.bytes.len() + cell.len()) else { return false };
        self.bytes.extend_from_slice(cell);
        self.ends.push(end);
        true
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The cell of row `at`; empty where there is no such row.
    pub fn cell(&self, at: usize) -> &[u8] {
        let start = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(at).copied().unwrap_or(start);
        self.bytes.get(start as usize..end as usize).unwrap_or_default()
    }

    /// All cells, in order.
    pub fn cells(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.len()).map(|at| self.cell(at))
    }
}

/// A table: columns of equal length, at least one row.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// The columns by name.
    pub columns: BTreeMap<String, Arc<Column>>,
    /// Which row a message takes.
    pub pick: RowPick,
}

/// What the places of templates may name beside what each message knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Data {
    /// The tables of a profile by name.
    pub tables: Arc<BTreeMap<String, Table>>,
    /// Names of values that are captured from responses, in the order in which they are rendered.
    pub captured: Arc<[String]>,
}

/// The table of captured values.
pub const RESPONSE: &str = "response";

/// A place in a template that is filled from a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    column: Arc<Column>,
    pick: RowPick,
}

impl Data {
    /// What `{table.column}` stands for; `key` is where the template stands.
    pub fn cell(&self, table: &str, column: &str, key: &str) -> Result<Cell, Problem> {
        let place = format!("{{{table}.{column}}}");
        let found = self.tables.get(table).ok_or_else(|| {
            let fix = match closest(table, self.tables.keys().map(String::as_str)) {
                Some(meant) => format!("did you mean {{{meant}.{column}}}?"),
                None => format!("add `data: {table}.csv` to the profile"),
            };
            Problem::new(key, format!("{place} names no table of `data`"), fix)
        })?;
        let cells = found.columns.get(column).ok_or_else(|| {
            let names = || found.columns.keys().map(String::as_str);
            let fix = match closest(column, names()) {
                Some(meant) => format!("did you mean {{{table}.{meant}}}?"),
                None => format!("use one of: {}", choices(names())),
            };
            Problem::new(key, format!("{place}: the table has no such column"), fix)
        })?;
        Ok(Cell { column: Arc::clone(cells), pick: found.pick })
    }
}

impl Data {
    /// The number of the captured value that `{response.name}` stands for.
    pub fn captured(&self, name: &str, key: &str) -> Result<usize, Problem> {
        self.captured.iter().position(|one| one == name).ok_or_else(|| {
            let fix = match closest(name, self.captured.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean {{response.{meant}}}?"),
                None => "name it in the `capture` of a request that is sent before".to_owned(),
            };
            Problem::new(key, format!("{{response.{name}}}: no capture is called so"), fix)
        })
    }
}

impl Cell {
    /// The bytes for message `seq` of `device`.
    #[inline]
    pub fn value(&self, device: u32, seq: u64) -> &[u8] {
        let rows = self.column.len().max(1) as u64;
        let row = match self.pick {
            RowPick::Device => u64::from(device) % rows,
            RowPick::Message => u64::from(device).wrapping_add(seq) % rows,
            RowPick::Random(seed) => mixed(seed ^ u64::from(device).rotate_left(32) ^ seq) % rows,
        };
        self.column.cell(row as usize)
    }

    /// All that it may be.
    pub fn column(&self) -> &Column {
        &self.column
    }

    /// Whether all messages of a device get the same.
    pub fn per_device(&self) -> bool {
        self.pick == RowPick::Device
    }

    /// Length of the longest cell.
    pub fn max_len(&self) -> usize {
        self.column.cells().map(<[u8]>::len).max().unwrap_or(0)
    }

    /// Number, from 1, of the first row whose value is refused by `fine`.
    pub fn bad_row(&self, fine: impl Fn(u8) -> bool) -> Option<usize> {
        self.column.cells().position(|cell| !cell.iter().copied().all(&fine)).map(|at| at + 1)
    }
}

/// The finalizer of SplitMix64: each bit of `x` changes about half of the result's.
fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pick: RowPick) -> Data {
        let mut names = Column::default();
        assert!(["ann", "", "christopher"].iter().all(|cell| names.push(cell.as_bytes())));
        let columns = BTreeMap::from([("name".to_owned(), Arc::new(names))]);
        Data {
            tables: Arc::new(BTreeMap::from([("users".to_owned(), Table { columns, pick })])),
            ..Data::default()
        }
    }

    fn values(pick: RowPick, messages: &[(u32, u64)]) -> Vec<String> {
        let cell = data(pick).cell("users", "name", "").expect("there");
        let value = |&(device, seq)| String::from_utf8_lossy(cell.value(device, seq)).into_owned();
        messages.iter().map(value).collect()
    }

    #[test]
    fn each_pick_takes_its_row() {
        let messages = [(0, 0), (0, 1), (1, 0), (2, 0), (3, 0), (2, 5)];
        assert_eq!(
            values(RowPick::Device, &messages),
            ["ann", "ann", "", "christopher", "ann", "christopher"]
        );
        assert_eq!(values(RowPick::Message, &messages), ["ann", "", "", "christopher", "ann", ""]);
    }

    #[test]
    fn a_draw_repeats_with_its_seed_and_reaches_every_row() {
        let many: Vec<_> = (0..300).map(|seq| (7, seq)).collect();
        let drawn = values(RowPick::Random(1), &many);
        assert_eq!(drawn, values(RowPick::Random(1), &many));
        assert_ne!(drawn, values(RowPick::Random(2), &many));
        for name in ["ann", "", "christopher"] {
            let times = drawn.iter().filter(|one| *one == name).count();
            assert!((50..150).contains(&times), "{name:?} {times} times of 300");
        }
    }

    #[test]
    fn what_is_not_there_is_named_with_what_is() {
        let why = |table, column| {
            data(RowPick::Device).cell(table, column, "path").expect_err("not there").to_string()
        };
        assert_eq!(
            why("user", "name"),
            "path: {user.name} names no table of `data`; did you mean {users.name}?"
        );
        assert!(why("users", "mail").contains("use one of: name"));
        assert!(
            Data::default()
                .cell("users", "name", "path")
                .expect_err("none")
                .to_string()
                .contains("data: users.csv")
        );
    }

    #[test]
    fn a_cell_knows_its_longest_and_its_first_bad_row() {
        let cell = data(RowPick::Device).cell("users", "name", "").expect("there");
        assert_eq!((cell.max_len(), cell.bad_row(|b| b != b'p')), (11, Some(3)));
        assert_eq!(cell.bad_row(|_| true), None);
    }
}
