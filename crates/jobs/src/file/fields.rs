//! Reading values out of a table, each with its place in the file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use holdall_wire::span;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::flaw::{Flaw, NAME_MAX, Problem};

/// A text, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// A table of the file.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    /// The whole file.
    file: &'a str,
    table: &'a DeTable<'a>,
}

type Value<'a> = Spanned<DeValue<'a>>;

impl<'a> Fields<'a> {
    pub(super) fn new(
        file: &'a str,
        table: &'a DeTable<'a>,
        known: &'static [&'static str],
    ) -> Result<Self, Flaw> {
        let fields = Self { file, table };
        // The first in the file is told, not the first of the alphabet.
        let unknown = table.keys().filter(|key| !known.contains(&key.as_ref().as_ref()));
        match unknown.min_by_key(|key| key.span().start) {
            Some(key) => {
                let problem = Problem::Key { key: key.as_ref().to_string(), known };
                Err(fields.flaw(&key.span(), problem))
            }
            None => Ok(fields),
        }
    }

    pub(super) fn flaw(&self, span: &Range<usize>, problem: Problem) -> Flaw {
        Flaw::at(self.file, span, problem)
    }

    fn get(&self, key: &str) -> Option<&'a Value<'a>> {
        self.table.get(key)
    }

    fn kind(&self, key: &str, value: &Value<'_>, wanted: &'static str) -> Flaw {
        self.flaw(&value.span(), Problem::Kind { key: key.into(), wanted })
    }

    /// The value of a key, read as something.
    fn read<T>(
        &self,
        key: &str,
        wanted: &'static str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, Flaw> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value.get_ref()).map(Some).ok_or_else(|| self.kind(key, value, wanted))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<Text>, Flaw> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let text = value.get_ref().as_str().ok_or_else(|| self.kind(key, value, "a text"))?;
        Ok(Some(Text { text: text.into(), span: value.span() }))
    }

    pub(super) fn flag(&self, key: &str) -> Result<bool, Flaw> {
        Ok(self.read(key, "true or false", DeValue::as_bool)?.unwrap_or(false))
    }

    pub(super) fn number(&self, key: &str) -> Result<u32, Flaw> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Integer(n) => u32::from_str_radix(n.as_str(), n.radix()).ok(),
            _ => None,
        };
        Ok(self.read(key, "a number from 0 on", read)?.unwrap_or(0))
    }

    pub(super) fn duration(&self, key: &str) -> Result<Option<Duration>, Flaw> {
        let wanted = "a span of time, like \"30s\", \"10m\" or \"2h\"";
        self.read(key, wanted, |value| span(value.as_str()?).ok())
    }

    /// A list of texts, empty if there is none.
    pub(super) fn texts(&self, key: &str) -> Result<Vec<Text>, Flaw> {
        let wanted = "a list of texts";
        let Some(list) = self.read(key, wanted, DeValue::as_array)? else { return Ok(Vec::new()) };
        let text = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(text) => Ok(Text { text: text.into(), span: value.span() }),
            None => Err(self.kind(key, value, wanted)),
        };
        list.iter().map(text).collect()
    }

    /// Whether there is a list.
    pub(super) fn is_list(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| value.get_ref().as_array().is_some())
    }

    /// A table of texts; numbers and truth values count as such.
    pub(super) fn env(&self, key: &str) -> Result<BTreeMap<String, Text>, Flaw> {
        let wanted = "a table of texts";
        let mut all = BTreeMap::new();
        for (name, value) in self.read(key, wanted, DeValue::as_table)?.into_iter().flatten() {
            let variable = name.as_ref().to_string();
            let odd = variable.is_empty() || variable.contains(['=', '\0']);
            let text = plain(value.get_ref()).filter(|text| !odd && !text.contains('\0'));
            let text = text.ok_or_else(|| self.kind(key, value, wanted))?;
            all.insert(variable, Text { text, span: value.span() });
        }
        Ok(all)
    }

    /// The axes of a matrix and their values, in the order of the file.
    pub(super) fn axes(&self, key: &str) -> Result<Vec<(String, Vec<String>)>, Flaw> {
        let wanted = "a table of lists";
        let Some(table) = self.read(key, wanted, DeValue::as_table)? else { return Ok(Vec::new()) };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut axes = Vec::new();
        for (name, value) in entries {
            let axis = name.as_ref().to_string();
            let list = value.get_ref().as_array().ok_or_else(|| self.kind(key, value, wanted))?;
            let values = list.iter().map(|value| plain(value.get_ref()));
            let values = values.collect::<Option<Vec<_>>>();
            let values = values.ok_or_else(|| self.kind(key, value, wanted))?;
            if values.is_empty() {
                return Err(self.flaw(&value.span(), Problem::Axis(axis)));
            }
            axes.push((axis, values));
        }
        Ok(axes)
    }

    /// The tables under a key, by name, in the order of the file.
    pub(super) fn tables(&self, key: &str) -> Result<Vec<(Text, &'a DeTable<'a>)>, Flaw> {
        let wanted = "a table of tables, like [task.build]";
        let Some(table) = self.read(key, wanted, DeValue::as_table)? else { return Ok(Vec::new()) };
        let mut all = Vec::new();
        for (name, value) in table {
            let text = name.as_ref().to_string();
            let inner = value.get_ref().as_table().ok_or_else(|| self.kind(key, value, wanted))?;
            if !is_name(&text) {
                return Err(self.flaw(&name.span(), Problem::Name(text)));
            }
            all.push((Text { text, span: name.span() }, inner));
        }
        all.sort_by_key(|(name, _)| name.span.start);
        Ok(all)
    }
}

pub(super) fn is_name(text: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    let begins = |text: &str| text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    text.len() <= NAME_MAX && begins(text) && text.chars().all(fine)
}

fn plain(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(n) => Some(n.to_string()),
        DeValue::Float(n) => Some(n.to_string()),
        DeValue::Boolean(is) => Some(is.to_string()),
        _ => None,
    }
}
