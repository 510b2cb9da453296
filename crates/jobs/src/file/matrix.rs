//! A matrix makes one task for each combination of values.

use super::flaw::Problem;

/// The values of one task, by axis.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Values(Vec<(String, String)>);

impl Values {
    /// All combinations, the last axis fastest. Without axes one, of nothing.
    pub(super) fn all(axes: &[(String, Vec<String>)]) -> Vec<Self> {
        let mut all = vec![Self::default()];
        for (axis, values) in axes {
            let with = |before: &Self, value: &String| {
                let mut longer = before.0.clone();
                longer.push((axis.clone(), value.clone()));
                Self(longer)
            };
            all = all.iter().flat_map(|one| values.iter().map(move |v| with(one, v))).collect();
        }
        all
    }

    /// How many there are, unless that is more than can be counted.
    pub(super) fn count(axes: &[(String, Vec<String>)]) -> Option<usize> {
        axes.iter().try_fold(1_usize, |count, (_, values)| count.checked_mul(values.len()))
    }

    /// What stands after the name of the task.
    pub(super) fn suffix(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let values: Vec<&str> = self.0.iter().map(|(_, value)| value.as_str()).collect();
        format!("[{}]", values.join(","))
    }

    /// Puts the values in the place of the axes' names in braces. Without a matrix, braces are
    /// braces: the shell has its own use for them.
    pub(super) fn fill(&self, text: &str) -> Result<String, Problem> {
        if self.0.is_empty() {
            return Ok(text.into());
        }
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, from) = rest.split_at(at);
            filled.push_str(before);
            if from.starts_with("{{") || from.starts_with("}}") {
                filled.push_str(&from[..1]);
                rest = &from[2..];
                continue;
            }
            let inner = from.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            let (name, after) = inner.ok_or(Problem::Brace)?;
            let value = self.0.iter().find(|(axis, _)| axis == name);
            let (_, value) = value.ok_or_else(|| Problem::Placeholder {
                name: name.into(),
                axes: self.0.iter().map(|(axis, _)| axis.as_str()).collect::<Vec<_>>().join(", "),
            })?;
            filled.push_str(value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_multiply_and_braces_are_filled() {
        let axes = [("a", ["1", "2"]), ("b", ["x", "y"])]
            .map(|(axis, values)| (axis.to_owned(), values.map(String::from).to_vec()));
        let all = Values::all(&axes);
        let suffixes: Vec<String> = all.iter().map(Values::suffix).collect();
        assert_eq!(suffixes, ["[1,x]", "[1,y]", "[2,x]", "[2,y]"]);
        assert_eq!(Values::count(&axes), Some(4));
        assert_eq!(all[2].fill("-{b}{a}-{{b}}").as_deref(), Ok("-x2-{b}"));
        assert_eq!(
            all[0].fill("{c}").map_err(|p| p.to_string()).err().as_deref(),
            Some("'{c}' is no axis of the matrix (a, b); write {{ for a brace")
        );
        for bad in ["{a", "}", "a}b"] {
            assert_eq!(all[0].fill(bad), Err(Problem::Brace), "{bad}");
        }
        assert_eq!(Values::default().fill("${HOME} {x}").as_deref(), Ok("${HOME} {x}"));
    }
}
