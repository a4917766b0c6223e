//! `netdynod validate`: what is wrong with profiles, impairments and graphs.

use crate::files::{Door, Files};
use crate::profiles::Refusal;
use crate::{graphs, links, print, profiles, write_to_stderr};
use anyhow::Result;
use clap::Args;
use element::registry::Registry as Kinds;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// Which, and how it is told.
#[derive(Debug, Args)]
pub struct Validate {
    /// Profiles, JSON; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a file.
    #[arg(long)]
    json: bool,
    /// They say how a link is impaired, or name a preset; with `--json` the whole of it comes back.
    #[arg(long)]
    impair: bool,
    /// They are graphs of packet elements.
    #[arg(long, conflicts_with = "impair")]
    graph: bool,
    /// They may name what a profile over TCP may: no files, no driver's arguments.
    #[arg(long)]
    confined: bool,
    /// Standard input has a document on each line, and each gets an answer.
    #[arg(long)]
    lines: bool,
}

/// What is found in one document.
#[derive(Default)]
struct DocumentFindings {
    errors: Vec<profile::Error>,
    advice: Vec<profile::Error>,
    /// The whole of an impairment.
    spec: Option<serde_json::Value>,
}

/// Whether all are good.
pub fn run(args: &Validate, kinds: &Kinds) -> Result<bool> {
    let mut good = true;
    for file in &args.files {
        if args.lines && file == Path::new("-") {
            let mut input = io::stdin().lock();
            while let Some(text) = line(&mut input) {
                good &= answer((args, kinds), file, text)?;
            }
        } else {
            good &= answer((args, kinds), file, read(file))?;
        }
    }
    Ok(good)
}

/// Say what is found in a document; whether it is good.
fn answer((args, kinds): (&Validate, &Kinds), file: &Path, text: io::Result<String>) -> Result<bool> {
    let shown = file.to_string_lossy();
    let shown = profile::printable(&shown);
    let DocumentFindings { errors, advice, spec } = match text {
        Ok(text) => check(args, kinds, &text),
        Err(e) => {
            let what = format!("it cannot be read ({e})");
            let fix = "Check the path; what is no file goes to -, standard input";
            DocumentFindings {
                errors: vec![profile::Error::new("ND-104-08", "", what, fix)],
                ..DocumentFindings::default()
            }
        }
    };
    if args.json {
        let mut answer = serde_json::json!({"file": file, "errors": errors, "advice": advice});
        if let Some(spec) = spec {
            answer["spec"] = spec;
        }
        print(&format!("{answer}\n"))?;
        return Ok(errors.is_empty());
    }
    if errors.is_empty() {
        print(&format!("{shown}: good\n"))?;
    }
    for one in advice {
        write_to_stderr(&format!("{shown}: look again: {one}"));
    }
    for error in &errors {
        write_to_stderr(&format!("{shown}: {error}"));
    }
    Ok(errors.is_empty())
}

fn check(args: &Validate, kinds: &Kinds, text: &str) -> DocumentFindings {
    if args.impair {
        return match links::read(text) {
            Ok(spec) => {
                DocumentFindings { spec: Some(serde_json::json!(spec)), ..DocumentFindings::default() }
            }
            Err(error) => DocumentFindings { errors: vec![error], ..DocumentFindings::default() },
        };
    }
    if args.graph {
        return DocumentFindings {
            errors: graphs::check(text, kinds).err().unwrap_or_default(),
            ..DocumentFindings::default()
        };
    }
    let door = if args.confined { Door::Tcp } else { Door::Socket };
    match profiles::load(text, Files { door, folder: None }, kinds) {
        Ok(profile) => {
            let mut advice = profile::advise(&profile);
            advice.extend(profile::advise_here(&profile, &run::cpu::cores()));
            DocumentFindings { advice, ..DocumentFindings::default() }
        }
        Err(Refusal::Faults(errors)) => DocumentFindings { errors, ..DocumentFindings::default() },
        Err(Refusal::NotAllowed(error)) => {
            DocumentFindings { errors: vec![refused(&error)], ..DocumentFindings::default() }
        }
    }
}

/// What may not be named here, as a finding.
fn refused(error: &system::rpc::Error) -> profile::Error {
    let part = |name: &str| error.data[name].as_str().unwrap_or_default();
    profile::Error::new("ND-104-16", part("at"), error.message.as_str(), part("fix"))
}

/// More than this is no profile, whatever comes after it.
const MOST: u64 = 17 << 20;

/// The next line; the rest of one that is too long is read over.
fn line(input: &mut impl BufRead) -> Option<io::Result<String>> {
    let mut bytes = Vec::new();
    match input.by_ref().take(MOST + 1).read_until(b'\n', &mut bytes) {
        Ok(0) => return None,
        Err(e) => return Some(Err(e)),
        Ok(_) => {}
    }
    if bytes.len() as u64 > MOST && bytes.last() != Some(&b'\n') {
        return Some(input.skip_until(b'\n').and(Err(too_long())));
    }
    Some(String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8")))
}

fn too_long() -> io::Error {
    io::Error::other(format!("it has more than {MOST} bytes"))
}

fn read(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        let bytes = profile::file::read(file, MOST)?;
        return String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"));
    }
    let mut text = String::new();
    io::stdin().take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST { Err(too_long()) } else { Ok(text) }
}
