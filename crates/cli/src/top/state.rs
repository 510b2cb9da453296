//! What is seen and selected, and what a key does to it. No I/O.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use holdall_wire::{GrantView, PoolView, RequestNo, State, Status, WaitView};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::show;

/// What a key makes necessary.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Do(Act),
}

/// What is asked of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Explain(RequestNo),
    /// With the reason, if it is forced.
    Release {
        request: RequestNo,
        force: Option<String>,
    },
}

impl Act {
    pub(super) fn is_release(&self) -> bool {
        matches!(self, Self::Release { .. })
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explain(request) => write!(f, "the explanation of {request}"),
            Self::Release { request, .. } => write!(f, "the release of {request}"),
        }
    }
}

/// The lists that one can move in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum List {
    #[default]
    Waiting,
    Grants,
}

/// What keys mean.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// They move.
    #[default]
    Look,
    /// They are the filter.
    Filter,
    /// Yes or no: whether to release a grant, by force or not.
    Confirm { request: RequestNo, force: bool, question: String },
    /// They are the reason for which a grant is taken away.
    Reason { request: RequestNo, text: String },
    /// They move in a text, which begins with this line.
    Read { lines: Vec<String>, first: usize },
}

/// Everything.
pub(super) struct Top {
    /// Who looks, as the agent sees it.
    you: String,
    pub(super) status: Status,
    /// Whether there is more than is shown.
    pub(super) more: bool,
    /// Why nothing newer is shown.
    pub(super) stale: Option<String>,
    pub(super) list: List,
    /// What is selected in each list.
    waiting: Option<RequestNo>,
    grant: Option<RequestNo>,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// What is shown, one after the other, when nothing is typed or read any more.
    later: VecDeque<String>,
    /// How many rows the selected list showed last.
    pub(super) page: usize,
}

const KEYS: &str = "\
Tab         to the other list
↑ ↓ j k     to another row; PgUp, PgDn, Home, End further
Enter, e    why a request waits, and for whom; all about a grant
r           release a grant, after a question
/           show only what has a text in it; Esc shows all again
q, Ctrl-C   leave";

impl Top {
    pub(super) fn new(you: String) -> Self {
        Self {
            you,
            status: Status::default(),
            more: false,
            stale: Some("the agent is asked".into()),
            list: List::default(),
            waiting: None,
            grant: None,
            filter: String::new(),
            mode: Mode::default(),
            later: VecDeque::new(),
            page: 1,
        }
    }

    /// The agent is there no more, or again: then it is told when it has said something.
    pub(super) fn missed(&mut self, why: Option<&str>) {
        if let Some(why) = why {
            self.stale = Some(why.into());
        }
    }

    /// What the agent has said, or why it says nothing.
    pub(super) fn looked(&mut self, looked: Result<(Status, bool), String>) {
        let (status, more) = match looked {
            Ok(looked) => looked,
            Err(why) => return self.stale = Some(why),
        };
        let before = [List::Waiting, List::Grants].map(|list| (list, self.selected(list)));
        (self.status, self.more, self.stale) = (status, more, None);
        for (list, at) in before {
            // In place of what is gone that is selected which has taken its place.
            let rows = self.rows(list);
            let next = rows.get(at.min(rows.len().saturating_sub(1))).copied();
            let chosen = self.chosen(list);
            if chosen.is_some_and(|chosen| !rows.contains(&chosen)) {
                *chosen = next;
            }
        }
    }

    /// Shows a text until it was read; to somebody who is typing, or reads something else, after that.
    pub(super) fn show(&mut self, text: &str) {
        self.later.push_back(text.to_owned());
        self.show_next();
    }

    fn show_next(&mut self) {
        if self.mode == Mode::Look
            && let Some(text) = self.later.pop_front()
        {
            let lines = text.lines().map(show::clean).collect();
            self.mode = Mode::Read { lines, first: 0 };
        }
    }

    /// The pools that are shown.
    pub(super) fn pools(&self) -> Vec<&PoolView> {
        let shown = |pool: &&PoolView| pool.declared || pool.removed || pool.waiting > 0;
        let pools = self.status.pools.iter().filter(shown);
        pools.filter(|pool| self.takes(&[pool.name.as_str()])).collect()
    }

    /// The grants that are shown.
    pub(super) fn grants(&self) -> Vec<&GrantView> {
        let takes = |grant: &&GrantView| {
            let units = show::taken(&grant.taken);
            self.takes_who(&[&units, &grant.request.to_string()], &grant.who)
        };
        self.status.grants.iter().filter(takes).collect()
    }

    /// The requests that are shown, in the order of service.
    pub(super) fn waiting(&self) -> Vec<&WaitView> {
        let takes = |wait: &&WaitView| {
            let needs: Vec<_> = wait.needs.iter().map(ToString::to_string).collect();
            self.takes_who(&[&needs.join(" "), &wait.request.to_string()], &wait.who)
        };
        self.status.waiting.iter().filter(takes).collect()
    }

    fn takes_who(&self, texts: &[&str], who: &holdall_wire::Who) -> bool {
        let from = [&who.from.name, &who.from.reason].into_iter().flatten().map(String::as_str);
        let own = texts.iter().copied().chain([&*who.user, who.from.command.as_str()]);
        self.filter.is_empty() || self.takes(&own.chain(from).collect::<Vec<_>>())
    }

    fn takes(&self, texts: &[&str]) -> bool {
        let wanted = self.filter.to_lowercase();
        texts.iter().any(|text| text.to_lowercase().contains(&wanted))
    }

    /// The grants that are reservations.
    pub(super) fn reserved(&self) -> HashSet<RequestNo> {
        let reserved = self.status.grants.iter().filter(|grant| grant.state == State::Reserved);
        reserved.map(|grant| grant.request).collect()
    }

    fn rows(&self, list: List) -> Vec<RequestNo> {
        match list {
            List::Waiting => self.waiting().iter().map(|wait| wait.request).collect(),
            List::Grants => self.grants().iter().map(|grant| grant.request).collect(),
        }
    }

    /// The row that is selected: what was selected, or the first if that is gone.
    pub(super) fn selected(&self, list: List) -> usize {
        let chosen = match list {
            List::Waiting => self.waiting,
            List::Grants => self.grant,
        };
        self.rows(list).iter().position(|row| Some(*row) == chosen).unwrap_or(0)
    }

    fn select(&mut self, at: usize) {
        let rows = self.rows(self.list);
        *self.chosen(self.list) = rows.get(at.min(rows.len().saturating_sub(1))).copied();
    }

    fn chosen(&mut self, list: List) -> &mut Option<RequestNo> {
        match list {
            List::Waiting => &mut self.waiting,
            List::Grants => &mut self.grant,
        }
    }

    /// What follows from a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Key> {
        let pressed = self.press(key);
        self.show_next();
        pressed
    }

    fn press(&mut self, key: KeyEvent) -> Option<Key> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Key::Quit);
        }
        match &mut self.mode {
            Mode::Look => self.look(key.code),
            Mode::Filter => {
                match key.code {
                    KeyCode::Enter => self.mode = Mode::Look,
                    KeyCode::Esc => (self.mode, self.filter) = (Mode::Look, String::new()),
                    KeyCode::Backspace => drop(self.filter.pop()),
                    KeyCode::Char(c) => self.filter.push(c),
                    _ => {}
                }
                None
            }
            Mode::Confirm { request, force, .. } => {
                let (request, force) = (*request, *force);
                let yes = matches!(key.code, KeyCode::Char('y' | 'Y'));
                self.mode = match yes && force {
                    true => Mode::Reason { request, text: String::new() },
                    false => Mode::Look,
                };
                (yes && !force).then_some(Key::Do(Act::Release { request, force: None }))
            }
            Mode::Reason { request, text } => {
                match key.code {
                    KeyCode::Enter => {
                        let force = Some(std::mem::take(text));
                        let act = Act::Release { request: *request, force };
                        self.mode = Mode::Look;
                        return Some(Key::Do(act));
                    }
                    KeyCode::Esc => self.mode = Mode::Look,
                    KeyCode::Backspace => drop(text.pop()),
                    KeyCode::Char(c) => text.push(c),
                    _ => {}
                }
                None
            }
            Mode::Read { lines, first } => {
                match key.code {
                    KeyCode::Down | KeyCode::Char('j') if *first + 1 < lines.len() => *first += 1,
                    KeyCode::Up | KeyCode::Char('k') => *first = first.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => {}
                    _ => self.mode = Mode::Look,
                }
                None
            }
        }
    }

    fn look(&mut self, code: KeyCode) -> Option<Key> {
        let at = self.selected(self.list);
        match code {
            KeyCode::Char('q') => return Some(Key::Quit),
            KeyCode::Tab | KeyCode::BackTab | KeyCode::Left | KeyCode::Right => {
                self.list = match self.list {
                    List::Waiting => List::Grants,
                    List::Grants => List::Waiting,
                };
            }
            KeyCode::Down | KeyCode::Char('j') => self.select(at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(at.saturating_sub(1)),
            KeyCode::PageDown => self.select(at + self.page),
            KeyCode::PageUp => self.select(at.saturating_sub(self.page)),
            KeyCode::Home | KeyCode::Char('g') => self.select(0),
            KeyCode::End | KeyCode::Char('G') => self.select(usize::MAX),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('?' | 'h') => self.show(KEYS),
            KeyCode::Enter | KeyCode::Char('e') => return self.explain(at).map(Key::Do),
            KeyCode::Char('r') => self.ask_release(at),
            _ => {}
        }
        None
    }

    fn explain(&mut self, at: usize) -> Option<Act> {
        match self.list {
            List::Waiting => self.waiting().get(at).map(|wait| Act::Explain(wait.request)),
            List::Grants => {
                let text = self.grants().get(at).map(|grant| about(grant))?;
                self.show(&text);
                None
            }
        }
    }

    /// A reservation of one's own is released; everything else is taken away by force.
    fn ask_release(&mut self, at: usize) {
        if self.list != List::Grants {
            return self.show("only what is held can be released: Tab goes there");
        }
        let Some(grant) = self.grants().get(at).copied() else { return };
        let (request, units) = (grant.request, show::shorten(&show::taken(&grant.taken), 60));
        let force = grant.state != State::Reserved || *grant.who.user != *self.you;
        let question = if force {
            let who = show::who(&grant.who);
            format!("take {request} ({units}) away by force from {who}?")
        } else {
            format!("release your reservation {request} ({units})?")
        };
        self.mode = Mode::Confirm { request, force, question };
    }
}

/// All about a grant.
fn about(grant: &GrantView) -> String {
    let mut lines = vec![
        format!("grant      {}", grant.request),
        format!("holds      {}", show::taken(&grant.taken)),
        format!("who        {} on {}", show::who(&grant.who), show::clean(&grant.who.host)),
        format!("since      {} ago", show::ago(grant.since)),
    ];
    lines.extend(grant.until.map(|until| format!("lasts      {}", show::until(until))));
    let reason = grant.who.from.reason.as_deref();
    lines.extend(reason.map(|reason| format!("reason     {}", show::clean(reason))));
    let pids: Vec<_> = grant.pids.iter().map(ToString::to_string).collect();
    if !pids.is_empty() {
        lines.push(format!("processes  {}", pids.join(" ")));
    }
    lines.join("\n")
}

#[cfg(test)]
pub(super) mod tests {
    use holdall_wire::{From, Taken, Who};

    use super::*;

    fn who(user: &str, reason: &str) -> Who {
        let from = From { command: "make".into(), reason: Some(reason.into()), name: None };
        Who { user: user.into(), pid: 7, from, ..Who::default() }
    }

    /// Two grants and three that wait.
    pub(crate) fn example() -> Top {
        let grant = |n: u64, user: &str, state| GrantView {
            request: RequestNo(n),
            needs: Vec::new(),
            taken: vec![Taken {
                name: "gpu".parse().expect("a name"),
                units: vec![(format!("gpu/{n}").parse().expect("a name"), n)],
            }],
            who: who(user, "\u{1b}[2J<script>\u{202e}"),
            since: 0,
            until: None,
            state,
            pids: vec![7],
            part_of: None,
            parts: Vec::new(),
        };
        let wait = |n: u64| WaitView {
            request: RequestNo(n),
            needs: vec!["gpu:2".parse().expect("a need")],
            who: who("anna", &format!("reason {n}")),
            since: 0,
            within: None,
            part_of: None,
            hindrances: Vec::new(),
        };
        let unit = |n: u64| holdall_wire::UnitView {
            name: format!("gpu/{n}").parse().expect("a name"),
            holder: (n < 3).then_some(RequestNo(n)),
            retiring: false,
            drained: None,
        };
        let pool = PoolView {
            name: "gpu".parse().expect("a name"),
            lock: false,
            declared: true,
            removed: false,
            units: (1..=4).map(unit).collect(),
            free: 2,
            holders: Vec::new(),
            waiting: 3,
        };
        let status = Status {
            pools: vec![pool],
            grants: vec![grant(1, "anna", State::Reserved), grant(2, "ben", State::Held)],
            waiting: (3..=5).map(wait).collect(),
            left_out: 0,
        };
        let mut top = Top::new("anna".into());
        top.looked(Ok((status, false)));
        top
    }

    fn typed(top: &mut Top, keys: &str) -> Vec<Act> {
        let code = |c| if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) };
        let pressed = keys.chars().filter_map(|c| top.key(code(c).into()));
        pressed
            .map(|key| match key {
                Key::Do(act) => act,
                Key::Quit => panic!("nobody leaves"),
            })
            .collect()
    }

    #[test]
    fn what_is_selected_stays_selected_while_the_queue_moves() {
        let mut top = example();
        assert_eq!(typed(&mut top, "je"), [Act::Explain(RequestNo(4))]);
        let mut status = top.status.clone();
        status.waiting.remove(0);
        top.looked(Ok((status, false)));
        assert_eq!(typed(&mut top, "e"), [Act::Explain(RequestNo(4))]);
        assert_eq!(typed(&mut top, "jjjj\n"), [Act::Explain(RequestNo(5))], "not beyond the end");
        let mut status = top.status.clone();
        status.waiting.pop();
        top.looked(Ok((status, false)));
        assert_eq!(typed(&mut top, "e"), [Act::Explain(RequestNo(4))], "its neighbour");
        top.looked(Ok((Status::default(), false)));
        assert_eq!(typed(&mut top, "jke"), []);
    }

    #[test]
    fn nobody_who_types_is_disturbed() {
        let mut top = example();
        typed(&mut top, "/gp");
        top.show("it was released by somebody else");
        assert_eq!(top.mode, Mode::Filter);
        assert_eq!(typed(&mut top, "u\n"), []);
        assert!(matches!(&top.mode, Mode::Read { lines, .. } if lines[0].starts_with("it was")));
        assert_eq!(typed(&mut top, "x"), []);
        assert_eq!((&top.mode, top.filter.as_str()), (&Mode::Look, "gpu"));
    }

    #[test]
    fn every_text_is_shown_until_it_was_read() {
        let mut top = example();
        let shown = |top: &Top| match &top.mode {
            Mode::Read { lines, .. } => lines.join(" "),
            other => format!("{other:?}"),
        };
        typed(&mut top, "/gp");
        ["one", "two"].iter().for_each(|text| top.show(text));
        typed(&mut top, "u\n");
        assert_eq!(shown(&top), "one");
        top.show("three");
        assert_eq!(shown(&top), "one", "it is being read");
        let all = ["two", "three", "Look"].map(|_| {
            typed(&mut top, "x");
            shown(&top)
        });
        assert_eq!(all, ["two", "three", "Look"]);
    }

    #[test]
    fn nothing_is_released_without_a_yes() {
        let mut top = example();
        assert_eq!(top.key(KeyCode::Tab.into()), None);
        assert_eq!(typed(&mut top, "rn"), []);
        let release = |request, force: Option<&str>| {
            let force = force.map(ToOwned::to_owned);
            Act::Release { request: RequestNo(request), force }
        };
        assert_eq!(typed(&mut top, "ry"), [release(1, None)], "one's own reservation");
        assert_eq!(typed(&mut top, "jr"), []);
        assert!(matches!(&top.mode, Mode::Confirm { question, .. } if question.contains("force")));
        assert_eq!(typed(&mut top, "ytoo lonk"), [], "a reason is asked for");
        top.key(KeyCode::Backspace.into());
        assert_eq!(typed(&mut top, "g\n"), [release(2, Some("too long"))]);
        assert_eq!(typed(&mut top, "ryno"), []);
        top.key(KeyCode::Esc.into());
        assert_eq!(top.mode, Mode::Look, "it is thought better of");
    }

    #[test]
    fn a_filter_is_typed_and_undone() {
        let mut top = example();
        assert_eq!(typed(&mut top, "/Reason 4q\n"), []);
        assert_eq!((top.waiting().len(), top.filter.as_str()), (0, "Reason 4q"));
        top.key(KeyCode::Char('/').into());
        top.key(KeyCode::Backspace.into());
        assert_eq!(typed(&mut top, "\ne"), [Act::Explain(RequestNo(4))]);
        top.key(KeyCode::Esc.into());
        assert_eq!(top.waiting().len(), 3);
        let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(top.key(quit), Some(Key::Quit));
    }
}
