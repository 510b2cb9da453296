//! Figures for people: a table with a column for each protocol and a line for each figure. And what all results have in common when
//! they are printed.

use std::io::{self, Write};

use comfy_table::{CellAlignment, LineStyle, Table, presets};
use serde::Serialize;

use crate::cannot_write;

/// What a line is called, and how its figure is written for a column.
pub(super) type Figure<C> = (&'static str, fn(&C) -> String);

/// A table of some figures.
pub(super) fn table<C>(columns: &[C], name: impl Fn(&C) -> String, figures: &[Figure<C>]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()));
    table.set_header(std::iter::once(String::new()).chain(columns.iter().map(name)));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (called, figure) in figures {
        add_line(&mut table, (*called).to_owned(), columns.iter().map(figure));
    }
    table
}

/// One line more.
pub(super) fn add_line(table: &mut Table, called: String, values: impl Iterator<Item = String>) {
    table.add_row(std::iter::once(called).chain(values));
}

pub(super) fn decimal(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.digits$}"))
}

pub(super) fn whole(value: Option<u64>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// Prints results: as a table, or an object each.
pub(super) fn print<C: Serialize>(
    headline: &str,
    columns: &[C],
    table: fn(&[C]) -> Table,
    json: bool,
) -> anyhow::Result<()> {
    let print = || {
        let mut out = io::stdout().lock();
        if json {
            json_lines(&mut out, columns)?;
        } else {
            writeln!(out, "{headline}\n{}", table(columns).trim_fmt())?;
        }
        out.flush()
    };
    printed(print())
}

/// One object each, one a line.
pub(super) fn json_lines<C: Serialize>(
    out: &mut impl Write,
    columns: impl IntoIterator<Item = C>,
) -> io::Result<()> {
    for column in columns {
        serde_json::to_writer(&mut *out, &column)?;
        writeln!(out)?;
    }
    Ok(())
}

/// The result is written, or whoever reads has read enough.
pub(super) fn printed(result: io::Result<()>) -> anyhow::Result<()> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(cannot_write("the result", error))
        }
        _ => Ok(()),
    }
}
