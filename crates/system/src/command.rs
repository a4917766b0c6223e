//! Commands of the daemon's program that a system brings: `netdynod NAME`.

use run::SetupError;

/// One command.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// As it is written after `netdynod`.
    pub name: &'static str,
    /// A sentence for the help, without a full stop.
    pub about: &'static str,
    /// What it can be told, each as `--NAME`.
    pub flags: &'static [Flag],
    /// Does it. Gets the names of the flags that were given. An error is told on standard error: the program then exits with
    /// 104 for a wrong input (`ND-104-…`), else with 92.
    pub run: fn(&[&str]) -> Result<(), SetupError>,
}

/// A switch of a command.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// Without the dashes.
    pub name: &'static str,
    /// A sentence for the help, without a full stop.
    pub about: &'static str,
}
