//! Models by what they can do, for what is told to people: no model is named.

use models::Params;
use protocol::describe::Description;

/// The models of which `can` holds, as a fix names them: `the stream model`, `the models a or b`.
pub fn models_where(can: impl Fn(&Description, &Params) -> bool) -> String {
    let all = models::ALL.iter().filter_map(|about| Some((about, Params::default_of(about.name)?)));
    let names: Vec<&str> =
        all.filter(|(about, params)| can(about, params)).map(|(about, _)| about.name).collect();
    match names.as_slice() {
        [one] => format!("the {one} model"),
        several => format!("the models {}", several.join(" or ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_model_or_several_are_named() {
        assert_eq!(
            models_where(|about, _| about.name == models::ALL[0].name),
            format!("the {} model", models::ALL[0].name)
        );
        let two = models_where(|about, _| models::ALL[..2].iter().any(|one| one.name == about.name));
        assert_eq!(two, format!("the models {} or {}", models::ALL[0].name, models::ALL[1].name));
    }
}
