//! In plain text.

use super::{Chart, Row};

/// From one lifeline to the next.
const WIDTH: usize = 18;
/// The first lifeline; the numbers of the steps are before it.
const FIRST: usize = 10;

pub(super) fn draw(chart: &Chart<'_>) -> String {
    let mut text = String::new();
    let mut push = |line: Vec<char>| {
        text.push_str(String::from_iter(line).trim_end());
        text.push('\n');
    };
    let mut head = vec![' '; FIRST + WIDTH * chart.parties.len()];
    for (i, who) in chart.parties.iter().enumerate() {
        write_around(&mut head, place(i), &who.to_string());
    }
    push(head);
    for (i, row) in chart.rows.iter().enumerate() {
        if chart.repeats_from == Some(i) {
            push("      and then, over and over:".chars().collect());
        }
        let mut line = lifelines(chart);
        write(&mut line, 0, &format!("{:>4}.", i + 1));
        draw_row(&mut line, row);
        push(line);
        for lifeline in &row.granted {
            let mut line = lifelines(chart);
            write_around(&mut line, place(*lifeline), "[granted]");
            push(line);
        }
    }
    push(format!("  => {}", chart.end).chars().collect());
    text
}

fn draw_row(line: &mut [char], row: &Row) {
    let (to, label) = (place(row.at), &row.label);
    match row.from.map(|(from, _)| place(from)) {
        Some(from) if from != to => {
            let (left, right) = (from.min(to) + 1, from.max(to));
            line[left..right].fill('-');
            let head = if row.lost { ['x', 'x'] } else { ['<', '>'] };
            if to < from {
                line[left] = head[0];
            } else {
                line[right - 1] = head[1];
            }
            let room = right - left - 4;
            write_around(line, (left + right) / 2, &format!(" {} ", shorten(label, room)));
        }
        Some(_) => write_around(line, to, &shorten(&format!("to itself: {label}"), WIDTH - 1)),
        None => write_around(line, to, &shorten(label, WIDTH - 1)),
    }
}

fn lifelines(chart: &Chart<'_>) -> Vec<char> {
    let mut line = vec![' '; FIRST + WIDTH * chart.parties.len()];
    (0..chart.parties.len()).for_each(|i| line[place(i)] = '|');
    line
}

const fn place(lifeline: usize) -> usize {
    FIRST + WIDTH * lifeline
}

fn write(line: &mut [char], at: usize, text: &str) {
    for (cell, char) in line[at..].iter_mut().zip(text.chars()) {
        *cell = char;
    }
}

fn write_around(line: &mut [char], middle: usize, text: &str) {
    write(line, middle.saturating_sub(text.chars().count() / 2), text);
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(2)).chain("..".chars()).collect()
}
