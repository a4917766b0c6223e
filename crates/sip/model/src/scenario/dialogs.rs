//! Names of the dialogs of a scenario.

use super::Step;
use protocol::problem::Problem;
use protocol::template::is_name;

/// Most dialogs of a scenario, the one without a name included.
const DIALOGS_MAX: usize = 8;

/// Names of the dialogs, in the order in which steps first name them; number 0 is the one without a name.
pub(super) fn names(steps: &[Step]) -> Result<Vec<String>, Problem> {
    let mut all = vec![String::new()];
    visit(steps, &mut all);
    for name in &all[1..] {
        let what = || format!("{name:?} cannot be the name of a dialog");
        Problem::unless(is_name(name), "dialog", what, "use letters, digits, - and _")?;
    }
    let what = || format!("{} dialogs are too many", all.len());
    Problem::unless(all.len() <= DIALOGS_MAX, "", what, format!("use at most {DIALOGS_MAX}"))?;
    Ok(all)
}

fn visit(steps: &[Step], all: &mut Vec<String>) {
    for step in steps {
        match step {
            Step::Send(send) => add_name(&send.dialog, all),
            Step::Expect(expect) => add_name(&expect.dialog, all),
            Step::ExpectAny(several) => several.iter().for_each(|one| add_name(&one.dialog, all)),
            Step::Answer(answer) => add_name(&answer.dialog, all),
            Step::Repeat(repeat) => visit(&repeat.steps, all),
            Step::Set(_) | Step::Assert(_) | Step::Pause(_) | Step::Label(_) | Step::Goto(_) => {}
        }
    }
}

fn add_name(name: &Option<String>, all: &mut Vec<String>) {
    if let Some(name) = name.as_ref().filter(|name| !all.contains(name)) {
        all.push(name.clone());
    }
}
