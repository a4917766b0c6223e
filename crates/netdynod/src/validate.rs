//! `netdynod validate`: what is wrong with profiles, impairments and graphs.

use crate::files::{Door, Files};
use crate::profiles::Refusal;
use crate::{graphs, links, print, profiles, tell};
use anyhow::Result;
use clap::Args;
use std::io::{self, Read};
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
}

/// Whether all are good.
pub fn run(args: &Validate) -> Result<bool> {
    let mut good = true;
    for file in &args.files {
        let shown = file.to_string_lossy();
        let shown = profile::printable(&shown);
        let (mut spec, mut advice) = (None, Vec::new());
        let errors = match read(file) {
            Ok(text) if args.impair => {
                let found = links::read(&text).map(|found| spec = Some(found));
                found.err().into_iter().collect()
            }
            Ok(text) if args.graph => graphs::check(&text).err().unwrap_or_default(),
            Ok(text) => match profiles::load(&text, Files { door: Door::Socket, folder: None }) {
                Ok(profile) => {
                    advice = profile::advise(&profile);
                    advice.extend(profile::advise_here(&profile, &run::cpu::cores()));
                    Vec::new()
                }
                Err(Refusal::Faults(faults)) => faults,
                Err(Refusal::NotAllowed(_)) => Vec::new(), // the owner may name any file
            },
            Err(e) => {
                let what = format!("it cannot be read ({e})");
                vec![profile::Error::new(
                    "ND-104-08",
                    "",
                    what,
                    "Check the path; what is no file goes to -, standard input",
                )]
            }
        };
        good &= errors.is_empty();
        if args.json {
            let mut answer = serde_json::json!({"file": file, "errors": errors, "advice": advice});
            if let Some(spec) = spec {
                answer["spec"] = serde_json::json!(spec);
            }
            print(&format!("{}\n", answer))?;
        } else if errors.is_empty() {
            print(&format!("{shown}: good\n"))?;
        }
        for one in advice.iter().filter(|_| !args.json) {
            tell(&format!("{shown}: look again: {one}"));
        }
        for error in errors.iter().filter(|_| !args.json) {
            tell(&format!("{shown}: {error}"));
        }
    }
    Ok(good)
}

/// More than this is no profile, whatever comes after it.
const MOST: u64 = 17 << 20;

fn read(file: &Path) -> io::Result<String> {
    if file != Path::new("-") {
        let bytes = profile::file::read(file, MOST)?;
        return String::from_utf8(bytes).map_err(|_| io::Error::other("it is not UTF-8"));
    }
    let mut text = String::new();
    io::stdin().take(MOST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MOST {
        Err(io::Error::other(format!("it has more than {MOST} bytes")))
    } else {
        Ok(text)
    }
}
