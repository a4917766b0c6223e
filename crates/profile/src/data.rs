//! Tables of values for templates, read from CSV files (RFC 4180).

use crate::error::{BAD_VALUE, Error, OUT_OF_RANGE};
use crate::{bounded, file};
use protocol::data::{Column, Data, RESPONSE, RowPick, Table};
use protocol::template::is_name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Most tables of a profile.
const TABLES: usize = 100;
/// Largest file.
const FILE_MAX: u64 = 256 << 20;
/// Longest cell, in bytes: servers take no longer fields of a head, and a body comes from a text of the profile.
const CELL_MAX: usize = 64 << 10;
/// Most rows of a table.
const ROWS_MAX: usize = 10_000_000;

/// The tables that templates name: one CSV file, called by its name without the ending, or several by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Tables {
    /// A CSV file; the table is called as the file without `.csv`.
    File(#[schemars(extend("format" = "file"))] String),
    /// Tables by name.
    Named(#[serde(deserialize_with = "bounded::map::<_, _, TABLES>")] BTreeMap<String, Source>),
}

impl Default for Tables {
    fn default() -> Self {
        Self::Named(BTreeMap::new())
    }
}

/// Where a table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Source {
    /// A CSV file; each device keeps one row.
    File(#[schemars(extend("format" = "file"))] String),
    /// A CSV file, and which row a message takes.
    Rows(Rows),
}

/// A CSV file, and which row a message takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The file: comma-separated, UTF-8, with the names of the columns in its first line; at most 256 MiB, a cell at
    /// most 64 KiB.
    #[schemars(extend("format" = "file"))]
    pub file: String,
    /// Which row a message takes. Default `device`.
    #[serde(default)]
    pub rows: RowChoice,
}

/// Which row of a table a message takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowChoice {
    /// Each device keeps one row, the row of its number; after the last row the first follows.
    #[default]
    Device,
    /// Each message of a device takes the next row.
    Message,
    /// A row drawn at random for each message; the profile's `seed` repeats the draws.
    Random,
}

impl Tables {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Named(all) if all.is_empty())
    }

    /// Name, place, file and row choice of each.
    fn all(&self) -> Vec<(String, String, &str, RowChoice)> {
        match self {
            Self::File(path) => {
                let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
                vec![(stem.unwrap_or_default(), "data".to_owned(), path, RowChoice::Device)]
            }
            Self::Named(all) => all
                .iter()
                .map(|(name, source)| match source {
                    Source::File(path) => {
                        (name.clone(), format!("data.{name}"), path.as_str(), RowChoice::Device)
                    }
                    Source::Rows(rows) => {
                        (name.clone(), format!("data.{name}.file"), rows.file.as_str(), rows.rows)
                    }
                })
                .collect(),
        }
    }

    /// Read them all.
    pub fn read(&self, seed: u64) -> Result<Data, Vec<Error>> {
        let (mut tables, mut errors) = (BTreeMap::new(), Vec::new());
        for (number, (name, at, path, choice)) in self.all().into_iter().enumerate() {
            let pick = match choice {
                RowChoice::Device => RowPick::Device,
                RowChoice::Message => RowPick::Message,
                RowChoice::Random => RowPick::Random(seed.wrapping_add(number as u64)),
            };
            match table(&name, &at, Path::new(path), pick) {
                Ok(table) => drop(tables.insert(name, table)),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(Data { tables: Arc::new(tables), ..Data::default() }) } else { Err(errors) }
    }
}

/// A name, behind a comma, if it may be told: what else stands in a file that was named by mistake is nobody's business.
fn quoted(name: &str) -> String {
    const LONGEST: usize = 24;
    let fine = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.');
    match name.chars().count() <= LONGEST && !name.is_empty() && name.chars().all(fine) {
        true => format!(", {name:?},"),
        false => String::new(),
    }
}

fn table(name: &str, at_key: &str, path: &Path, pick: RowPick) -> Result<Table, Error> {
    let shown = path.display();
    let wrong = |what: String, fix: &str| Error::new(BAD_VALUE, at_key, what, fix);
    if name == RESPONSE {
        return Err(wrong(
            "{response.…} is for what is captured from responses".to_owned(),
            "Name the table otherwise",
        ));
    }
    if !is_name(name) {
        let fix = "Use letters, digits, - and _: {\"data\": {\"users\": \"FILE\"}}";
        return Err(wrong(format!("{name:?} cannot be the name of a table"), fix));
    }
    let bytes = file::read(path, FILE_MAX)
        .map_err(|e| wrong(format!("{shown} cannot be read ({e})"), "Name a CSV file of at most 256 MiB"))?;
    let text = std::str::from_utf8(&bytes).map_err(|e| {
        wrong(format!("{shown} is not UTF-8 at byte {}", e.valid_up_to()), "Save it as UTF-8")
    })?;
    // some programs begin the file with a byte order mark
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let bad_row = |e: csv::Error| {
        let what = match e.kind() {
            csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
                let line = pos.as_ref().map_or(0, csv::Position::line);
                format!("{shown}: line {line} has {len} values, the first line {expected_len}")
            }
            _ => format!("{shown}: {e}"),
        };
        wrong(what, "Give each row as many values as there are columns; quote a value with a comma in it")
    };
    let names: Vec<String> =
        reader.headers().map_err(bad_row)?.iter().map(|name| name.trim().to_owned()).collect();
    if let Some((at, bad)) = names.iter().enumerate().find(|(_, name)| !is_name(name)) {
        let what = format!(
            "{shown}: what its first line has for column {}{} cannot be the name of a column",
            at + 1,
            quoted(bad)
        );
        return Err(wrong(what, "Name the columns in the first line, with letters, digits, - and _"));
    }
    let mut columns = vec![Column::default(); names.len()];
    let mut row = csv::StringRecord::new();
    let too_long = |row: &csv::StringRecord, at: usize| {
        let line = row.position().map_or(0, csv::Position::line);
        let (name, len) = (&names[at], row[at].len());
        let column = format!("column {}{}", at + 1, quoted(name));
        let column = column.trim_end_matches(',');
        let what = format!("{shown}: line {line}, {column}: the cell has {len} bytes, over {CELL_MAX}");
        Error::new(OUT_OF_RANGE, at_key, what, "Use cells of at most 64 KiB")
    };
    while reader.read_record(&mut row).map_err(bad_row)? {
        if let Some(at) = row.iter().position(|cell| cell.len() > CELL_MAX) {
            return Err(too_long(&row, at));
        }
        let fits = columns.iter_mut().zip(&row).all(|(column, cell)| column.push(cell.as_bytes()));
        if !fits || columns.first().is_some_and(|column| column.len() > ROWS_MAX) {
            let what = format!("{shown} has more than {ROWS_MAX} rows");
            return Err(Error::new(OUT_OF_RANGE, at_key, what, "Use a smaller table"));
        }
    }
    if columns.first().is_none_or(Column::is_empty) {
        return Err(wrong(format!("{shown} has no rows below its first line"), "Add at least one row"));
    }
    let mut named = BTreeMap::new();
    for (name, column) in names.into_iter().zip(columns) {
        if named.contains_key(&name) {
            let what = format!("{shown} has two columns of one name{}", quoted(&name).trim_end_matches(','));
            return Err(wrong(what, "Give each its own name"));
        }
        named.insert(name, Arc::new(column));
    }
    Ok(Table { columns: named, pick })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secrets;
    use std::fs;

    fn read(content: &[u8]) -> Result<Data, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users.csv");
        fs::write(&path, content).expect("written");
        Tables::File(path.to_string_lossy().into_owned()).read(1).map_err(|all| all[0].to_string())
    }

    #[test]
    fn a_table_is_read_as_other_programs_write_it() {
        let data =
            read("\u{feff}name, mail\r\nann,\"a,b\"\r\n\"say \"\"hi\"\"\",\"two\nlines\"\r\n".as_bytes())
                .expect("good");
        let cell = |column: &str, device| {
            let cell = data.cell("users", column, "").expect("there");
            String::from_utf8_lossy(cell.value(device, 0)).into_owned()
        };
        assert_eq!((cell("name", 0), cell("mail", 0)), ("ann".into(), "a,b".into()));
        assert_eq!((cell("name", 1), cell("mail", 1)), ("say \"hi\"".into(), "two\nlines".into()));
        assert_eq!(cell("name", 2), "ann", "after the last row the first follows");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (content, why) in [
            (&b"name,mail\nann,1\nbob\n"[..], "line 3 has 1 values, the first line 2"),
            (b"name\n", "no rows"),
            (b"", "no rows"),
            (b"name,name\n1,2\n", "two columns of one name, \"name\""),
            (b"a,first name\n1\n", "column 2, \"first name\", cannot be the name of a column"),
            (b"root:*:20228:0:99999\n", "what its first line has for column 1 cannot be the name"),
            (b"name\n\xff\n", "not UTF-8 at byte 5"),
        ] {
            let said = read(content).expect_err(why);
            assert!(said.contains(why) && said.contains("at data:"), "{said}");
        }
        let absent = Tables::File("/nowhere/users.csv".into()).read(1).expect_err("absent");
        assert!(absent[0].what.contains("cannot be read"), "{}", absent[0]);
    }

    #[test]
    fn a_cell_has_a_longest() {
        let with = |len: usize| read(format!("id,text\n1,a\n2,{}\n", "x".repeat(len)).as_bytes());
        assert!(with(CELL_MAX).is_ok());
        let said = with(CELL_MAX + 1).expect_err("too long");
        assert!(said.contains("line 3, column 2, \"text\": the cell has 65537 bytes, over 65536"), "{said}");
    }

    #[test]
    fn only_columns_that_say_so_are_secret() {
        let data = read(b"name,password\nannette,pa{x}word\nbob,hunter2\n").expect("good");
        let secrets = Secrets::new(&serde_json::Value::Null, &data, []);
        assert_eq!(secrets.hide("annette pa{x}word, hunter2"), "annette ***, ***");
    }
}
