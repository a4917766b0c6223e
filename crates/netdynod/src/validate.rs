//! `netdynod validate`: what is wrong with profiles.

use crate::{links, print};
use anyhow::Result;
use clap::Args;
use std::io;
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
}

/// Whether all are good.
pub fn run(args: &Validate) -> Result<bool> {
    let mut good = true;
    for file in &args.files {
        let mut spec = None;
        let errors = match read(file) {
            Ok(text) if args.impair => {
                let found = links::read(&text).map(|found| spec = Some(found));
                found.err().into_iter().collect()
            }
            Ok(text) => profile::load(&text).err().unwrap_or_default(),
            Err(e) => {
                let what = format!("it cannot be read ({e})");
                vec![profile::Error::new("ND-104-08", "", what, "Check the path")]
            }
        };
        good &= errors.is_empty();
        if args.json {
            let mut answer = serde_json::json!({"file": file, "errors": errors});
            if let Some(spec) = spec {
                answer["spec"] = serde_json::json!(spec);
            }
            print(&format!("{}\n", answer))?;
        } else if errors.is_empty() {
            print(&format!("{}: good\n", file.display()))?;
        }
        for error in errors.iter().filter(|_| !args.json) {
            eprintln!("{}: {error}", file.display());
        }
    }
    Ok(good)
}

fn read(file: &Path) -> io::Result<String> {
    if file == Path::new("-") { io::read_to_string(io::stdin()) } else { std::fs::read_to_string(file) }
}
