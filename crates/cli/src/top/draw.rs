//! How it looks. Only the rows that there is room for are put into words.

use std::collections::HashSet;

use super::state::{List, Mode, Top};
use crate::show;
use crate::unreached::Unreached;
use holdall_wire::{PoolView, RequestNo, State, Taken};
use ratatui::Frame;
use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table, Wrap};

/// With fewer lines only the selected list is shown.
const LOW: u16 = 14;
/// With fewer rows there is no room for the names of the columns.
const NAMED: usize = 4;
/// How many units of a pool have a sign of their own.
const SIGNS: usize = 48;

pub(super) fn draw(frame: &mut Frame<'_>, top: &mut Top) {
    let one = Constraint::Length(1);
    let [head, body, foot] = Layout::vertical([one, Constraint::Min(0), one]).areas(frame.area());
    frame.render_widget(header(top), head);
    lists(frame, top, body);
    frame.render_widget(footer(top), foot);
    match &top.mode {
        Mode::Read { lines, first } => {
            let lines: Vec<_> = lines.iter().skip(*first).map(|line| Line::raw(&**line)).collect();
            popup(frame, body, lines);
        }
        Mode::Confirm { question, .. } => {
            popup(
                frame,
                body,
                vec![Line::raw(&**question), Line::raw("y: yes   any other key: no")],
            );
        }
        Mode::Reason { text, .. } => {
            let typed = format!("{}▏", show::clean(text));
            let lines =
                ["why? It goes to the audit log.", &*typed, "Enter: take it away   Esc: no"];
            popup(frame, body, lines.into_iter().map(|line| Line::raw(line.to_owned())).collect());
        }
        Mode::Look | Mode::Filter => {}
    }
}

fn header(top: &Top) -> Line<'_> {
    let (held, wait) = (top.status.grants.len(), top.status.waiting.len());
    let more = if top.more { " and more" } else { "" };
    let mut line = Line::from(vec![
        Span::raw("holdall").bold(),
        Span::raw(format!("  {held} held, {wait} waiting{more}")),
    ]);
    if let Some(why) = &top.stale {
        line.push_span(Span::raw(format!("  {}", show::clean(why))).red());
    }
    line
}

fn footer(top: &Top) -> Line<'_> {
    match top.mode {
        Mode::Filter => {
            Line::raw(format!("/{}▏  Enter: keep  Esc: show all", show::clean(&top.filter)))
        }
        _ if !top.filter.is_empty() => {
            Line::raw(format!("only '{}'  Esc: show all  ?: keys", show::clean(&top.filter)))
                .yellow()
        }
        _ => {
            Line::raw("Tab: other list  e: explain  r: release  /: filter  ?: keys  q: leave").dim()
        }
    }
}

fn lists(frame: &mut Frame<'_>, top: &mut Top, area: Rect) {
    if area.height < LOW {
        return match top.list {
            List::Waiting => waiting(frame, top, area),
            List::Grants => grants(frame, top, area),
        };
    }
    let high = (top.pools().len() as u16).saturating_add(2).clamp(3, area.height / 3);
    let [first, second, third] =
        Layout::vertical([Constraint::Length(high), Constraint::Fill(1), Constraint::Fill(1)])
            .areas(area);
    pools(frame, top, first);
    grants(frame, top, second);
    waiting(frame, top, third);
}

fn pools(frame: &mut Frame<'_>, top: &Top, area: Rect) {
    let (pools, reserved) = (top.pools(), top.reserved());
    let rows = pools.iter().take(area.height.saturating_sub(2) as usize).map(|pool| {
        let free = if pool.lock {
            if pool.holders.is_empty() { "free".into() } else { "held".into() }
        } else {
            format!("{} of {} free", pool.free, pool.units.len())
        };
        Row::new([
            Cell::new(show::clean(pool.name.as_str())),
            Cell::new(free),
            Cell::new(if pool.waiting > 0 {
                format!("{} wait", pool.waiting)
            } else {
                String::new()
            }),
            Cell::new(signs(pool, &reserved)),
        ])
    });
    let widths =
        [Constraint::Max(24), Constraint::Length(14), Constraint::Length(10), Constraint::Fill(1)];
    let title = " pools: █ held  ▒ reserved  · free  x drained ";
    frame.render_widget(Table::new(rows, widths).block(Block::bordered().title(title)), area);
}

/// A sign for each unit.
fn signs(pool: &PoolView, reserved: &HashSet<RequestNo>) -> Line<'static> {
    let sign = |unit: &holdall_wire::UnitView| match unit.holder {
        Some(holder) if reserved.contains(&holder) => "▒".cyan(),
        Some(_) => "█".yellow(),
        None if unit.drained.is_some() => "x".red(),
        None => "·".green(),
    };
    let mut line: Line<'static> =
        pool.units.iter().take(SIGNS).map(sign).collect::<Vec<_>>().into();
    if pool.units.len() > SIGNS {
        line.push_span(Span::raw("…"));
    }
    line
}

fn grants(frame: &mut Frame<'_>, top: &mut Top, area: Rect) {
    let window = window(top, List::Grants, area);
    let all = top.grants();
    let title = format!(" held: {} ", all.len());
    let rows = all.iter().enumerate().skip(window.first).take(window.rows).map(|(at, grant)| {
        let state = match (grant.state, grant.until) {
            (State::Stopped, _) => "stopped".into(),
            (State::Ending, _) => "ending".into(),
            (_, Some(until)) => {
                format!("{} left", show::span(until.saturating_sub(show::now()) / 1000))
            }
            (State::Reserved, None) => "reserved".into(),
            (State::Held, None) => String::new(),
        };
        let cells = [
            grant.request.to_string(),
            show::shorten(&units(&grant.taken), 120),
            show::ago(grant.since),
            state,
            show::who(&grant.who),
            show::shorten(grant.who.from.reason.as_deref().unwrap_or_default(), 120),
        ];
        Row::new(cells).style(window.style(at))
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(3),
        Constraint::Length(7),
        Constraint::Length(12),
        Constraint::Fill(3),
        Constraint::Fill(2),
    ];
    let names = ["grant", "holds", "since", "state", "who", "reason"];
    frame.render_widget(window.table(rows, &widths, names, title), area);
}

fn waiting(frame: &mut Frame<'_>, top: &mut Top, area: Rect) {
    let window = window(top, List::Waiting, area);
    let all = top.waiting();
    let title = format!(" waiting, in the order of service: {} ", all.len());
    let rows = all.iter().enumerate().skip(window.first).take(window.rows).map(|(at, wait)| {
        let cells = [
            wait.request.to_string(),
            show::needs(&wait.needs),
            show::ago(wait.since),
            show::who(&wait.who),
            show::shorten(&show::because(&wait.hindrances, &Unreached::new()), 200),
        ];
        Row::new(cells).style(window.style(at))
    });
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Fill(3),
        Constraint::Fill(4),
    ];
    let names = ["request", "asks for", "since", "who", "because"];
    frame.render_widget(window.table(rows, &widths, names, title), area);
}

/// The rows of a list that are shown.
struct Window {
    first: usize,
    rows: usize,
    selected: usize,
    /// Whether keys move in it.
    chosen: bool,
    /// Whether there is room for the names of the columns.
    named: bool,
}

impl Window {
    fn style(&self, row: usize) -> Style {
        let marked = self.chosen && row == self.selected;
        if marked { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
    }

    fn table<'a, const N: usize>(
        &self,
        rows: impl Iterator<Item = Row<'a>>,
        widths: &[Constraint; N],
        names: [&'a str; N],
        title: String,
    ) -> Table<'a> {
        let table = Table::new(rows, widths).block(framed(title, self.chosen));
        if self.named { table.header(Row::new(names).dim()) } else { table }
    }
}

fn window(top: &mut Top, list: List, area: Rect) -> Window {
    let high = area.height.saturating_sub(2) as usize;
    let named = high >= NAMED;
    let rows = high.saturating_sub(usize::from(named));
    let (selected, chosen) = (top.selected(list), top.list == list);
    if chosen {
        top.page = rows.max(1);
    }
    // Full pages: what one looks at does not move with every key.
    let first = selected.checked_div(rows).unwrap_or(0) * rows;
    Window { first, rows, selected, chosen, named }
}

/// What a grant holds, by name: `gpu/0,3 license/maya`.
fn units(taken: &[Taken]) -> String {
    let of_one = |one: &Taken| {
        let pool = format!("{}/", one.name);
        let short = |name: &str| name.strip_prefix(&pool).unwrap_or(name).to_owned();
        let names = one.units.iter().enumerate();
        let names = names
            .map(|(at, (unit, _))| if at == 0 { unit.to_string() } else { short(unit.as_str()) });
        names.collect::<Vec<_>>().join(",")
    };
    taken.iter().map(of_one).collect::<Vec<_>>().join(" ")
}

fn framed(title: String, chosen: bool) -> Block<'static> {
    let block = Block::bordered().title(title);
    if chosen { block.bold() } else { block.dim() }
}

/// Lines over everything else.
fn popup(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    let wide = area.width.saturating_sub(4).min(110);
    let needed: usize = lines.iter().map(|line| 1 + line.width() / wide.max(3) as usize).sum();
    let high = (needed as u16).saturating_add(2).min(area.height);
    let [area] = Layout::horizontal([Constraint::Length(wide)]).flex(Flex::Center).areas(area);
    let [area] = Layout::vertical([Constraint::Length(high)]).flex(Flex::Center).areas(area);
    frame.render_widget(Clear, area);
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(text.block(Block::bordered()), area);
}

#[cfg(test)]
mod tests {
    use ratatui::backend::TestBackend;
    use ratatui::{Terminal, buffer};

    use super::super::state::tests::example;
    use super::*;

    fn screen(top: &mut Top, wide: u16, high: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(wide, high)).expect("a terminal");
        terminal.draw(|frame| draw(frame, top)).expect("drawn");
        let cells = terminal.backend().buffer().content();
        let rows = cells.chunks(wide as usize);
        let row = |row: &[buffer::Cell]| row.iter().map(buffer::Cell::symbol).collect();
        rows.map(row).collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn everything_is_there_and_hostile_texts_are_harmless() {
        let told = screen(&mut example(), 160, 30);
        let there = ["2 held, 3 waiting", "2 of 4 free", "▒█··", "gpu/1", "ben", "<script>", "0-5"];
        let names = ["grant", "holds", "reason", "asks for", "because"];
        for text in there.into_iter().chain(names) {
            assert!(told.contains(text), "no {text}:\n{told}");
        }
        assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told}");
    }

    #[test]
    fn it_fits_into_every_terminal() {
        for (wide, high) in [(1, 1), (2, 3), (10, 5), (40, 12), (80, 24), (300, 100)] {
            let mut top = example();
            screen(&mut top, wide, high);
            top.show(&"a long text ".repeat(100));
            screen(&mut top, wide, high);
            (top.mode, top.filter) = (Mode::Filter, "gpu".into());
            screen(&mut top, wide, high);
            top.looked(Err("the agent is away".into()));
            screen(&mut top, wide, high);
        }
    }

    #[test]
    fn the_selected_row_is_in_sight_however_long_the_queue_is() {
        let mut top = example();
        let one = top.status.waiting[0].clone();
        top.status.waiting = (0..10_000)
            .map(|n| holdall_wire::WaitView { request: RequestNo(n + 10), ..one.clone() })
            .collect();
        let end = ratatui::crossterm::event::KeyCode::End;
        top.key(ratatui::crossterm::event::KeyEvent::from(end));
        assert!(screen(&mut top, 120, 30).contains("0-10009"));
    }
}
