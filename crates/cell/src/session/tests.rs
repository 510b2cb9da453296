//! Sessions one by one, and clients over connections and agents that come and go.

use proptest::prelude::*;

use super::*;

const SESSION: SessionId = SessionId(1);

fn hello() -> Hello {
    Hello {
        session: SESSION,
        secret: Secret(7),
        uid: 1000,
        means: Means::Lease(50),
        returns: false,
        heard: CallNo(0),
    }
}

/// Sessions with one, attached to connection 1.
fn attached() -> Sessions {
    let mut sessions = Sessions::default();
    sessions.attach(ConnNo(1), &hello(), &Limits::default()).expect("it is new");
    sessions
}

fn turn(sessions: &mut Sessions, conn: ConnNo, call: CallNo) -> Turn {
    sessions.call(conn, call, false).expect("it is taken").1
}

#[test]
fn a_call_is_new_once_and_what_came_of_it_is_told_again() {
    let mut sessions = attached();
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(1)), Turn::New);
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(1)), Turn::Pending, "it is being done");
    sessions.opened(SESSION, CallNo(1), RequestNo(9));
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(1)), Turn::Open(RequestNo(9)));
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(2)), Turn::New);
    sessions.replied(SESSION, CallNo(2), Answer::Done);
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(2)), Turn::Replied(Answer::Done));
    assert_eq!(sessions.call(ConnNo(1), CallNo(0), false), Err(Wrong::Zero));
    assert_eq!(sessions.call(ConnNo(2), CallNo(3), false), Err(Wrong::NotAttached));
}

#[test]
fn whoever_comes_back_is_told_what_it_missed() {
    let mut sessions = attached();
    for call in 1..=3 {
        sessions.call(ConnNo(1), CallNo(call), false).expect("the next");
    }
    sessions.opened(SESSION, CallNo(1), RequestNo(9));
    assert_eq!(sessions.detach(10, ConnNo(1)), None, "it lasts");
    sessions.replied(SESSION, CallNo(2), Answer::Done);
    let back = Hello { returns: true, heard: CallNo(0), ..hello() };
    let welcome = sessions.attach(ConnNo(2), &back, &Limits::default()).expect("it is known");
    assert_eq!(welcome.last, CallNo(3));
    assert_eq!(welcome.open, [(CallNo(1), RequestNo(9))]);
    assert_eq!(welcome.replied, [(CallNo(2), Answer::Done)]);
    sessions.hear(ConnNo(2), CallNo(2));
    let welcome = sessions.attach(ConnNo(3), &back, &Limits::default()).expect("it is known");
    assert_eq!(welcome.displaced, Some(ConnNo(2)));
    assert_eq!(welcome.open, [(CallNo(1), RequestNo(9))], "what is open is told whoever has heard");
    assert!(welcome.replied.is_empty());
    assert_eq!(
        sessions.call(ConnNo(2), CallNo(4), false),
        Err(Wrong::NotAttached),
        "the last one counts"
    );
    sessions.check().expect("sound");
}

#[test]
fn a_grant_that_ends_after_it_was_heard_of_leaves_nothing_behind() {
    let mut sessions = attached();
    sessions.call(ConnNo(1), CallNo(1), false).expect("the first");
    sessions.opened(SESSION, CallNo(1), RequestNo(9));
    sessions.hear(ConnNo(1), CallNo(1));
    sessions.detach(10, ConnNo(1));
    sessions.replied(SESSION, CallNo(1), Answer::Lost(RequestNo(9)));
    let back = Hello { returns: true, heard: CallNo(1), ..hello() };
    let welcome = sessions.attach(ConnNo(2), &back, &Limits::default()).expect("it is known");
    assert!(welcome.open.is_empty() && welcome.replied.is_empty());
    assert!(sessions.sessions[&SESSION].outcomes.is_empty());
}

#[test]
fn nobody_gets_at_a_session_of_another() {
    let mut sessions = attached();
    let before = sessions.clone();
    let others = [
        Hello { secret: Secret(8), ..hello() },
        Hello { uid: 1001, returns: true, ..hello() },
        Hello { uid: 0, ..hello() },
    ];
    for other in others {
        assert_eq!(sessions.attach(ConnNo(2), &other, &Limits::default()), Err(Turned::Stranger));
    }
    let unknown = Hello { session: SessionId(2), returns: true, ..hello() };
    assert_eq!(sessions.attach(ConnNo(2), &unknown, &Limits::default()), Err(Turned::Forgotten));
    assert_eq!(sessions, before, "nothing has changed");
    assert_eq!(format!("{:?}", Secret(8)), "Secret", "it is not shown");
}

#[test]
fn a_lease_lapses_when_nobody_comes_back_and_a_process_does_not() {
    let mut sessions = attached();
    let process = Means::Process { pid: 4, start: 5 };
    let other = Hello { session: SessionId(2), means: process, ..hello() };
    sessions.attach(ConnNo(2), &other, &Limits::default()).expect("it is new");
    assert_eq!(sessions.next_lapse(), None, "both are here");
    sessions.detach(100, ConnNo(1));
    sessions.detach(100, ConnNo(2));
    assert_eq!(sessions.next_lapse(), Some(150));
    assert_eq!(sessions.lapsed(149).count(), 0);
    assert_eq!(sessions.lapsed(150).collect::<Vec<_>>(), [SESSION]);
    sessions.detach_all(1000);
    assert_eq!(sessions.next_lapse(), Some(1050), "no agent was there: it could not come");
    let back = Hello { returns: true, ..hello() };
    sessions.attach(ConnNo(3), &back, &Limits::default()).expect("it is known");
    assert_eq!(sessions.next_lapse(), None);
}

#[test]
fn a_lease_does_not_lapse_while_there_are_only_reservations() {
    let mut sessions = attached();
    let (asked, other) = (CallNo(1), CallNo(2));
    sessions.opened(SESSION, asked, RequestNo(1));
    sessions.reserves(SESSION);
    sessions.detach(100, ConnNo(1));
    assert_eq!(sessions.next_lapse(), None);
    sessions.opened(SESSION, other, RequestNo(2));
    assert_eq!(sessions.next_lapse(), Some(150), "what else there is ends with the lease");
    sessions.replied(SESSION, other, Answer::Done);
    assert_eq!(sessions.next_lapse(), None);
    sessions.check().expect("sound");
    sessions.replied(SESSION, asked, Answer::Done);
    sessions.reserves_no_more(SESSION);
    assert_eq!(sessions.lapsed(150).collect::<Vec<_>>(), [SESSION], "it is long over");
    sessions.check().expect("sound");
}

/// Whoever came over a connection first has it, and loses nothing to another.
#[test]
fn a_connection_has_one_session() {
    let mut sessions = attached();
    let other = Hello { session: SessionId(2), ..hello() };
    let before = sessions.clone();
    assert_eq!(sessions.attach(ConnNo(1), &other, &Limits::default()), Err(Turned::Attached));
    assert_eq!(sessions, before);
    sessions.attach(ConnNo(1), &hello(), &Limits::default()).expect("its own");
}

#[test]
fn a_user_has_so_many_sessions_and_no_lease_is_longer_than_it_may_be() {
    let limits = Limits { sessions: 2, lease: 50, ..Limits::default() };
    let mut sessions = Sessions::default();
    let one = |session, uid, millis| {
        let (session, means) = (SessionId(session), Means::Lease(millis));
        Hello { session, uid, means, ..hello() }
    };
    assert_eq!(sessions.attach(ConnNo(1), &one(1, 7, 51), &limits), Err(Turned::TooLong(50)));
    assert_eq!(sessions, Sessions::default(), "nothing has changed");
    for session in 1..=2 {
        sessions.attach(ConnNo(session), &one(session.into(), 7, 50), &limits).expect("it may");
    }
    assert_eq!(sessions.attach(ConnNo(3), &one(3, 7, 50), &limits), Err(Turned::TooMany(2)));
    sessions.attach(ConnNo(3), &one(3, 8, 50), &limits).expect("another user");
    sessions.attach(ConnNo(4), &one(1, 7, 50), &limits).expect("it is there already");
    sessions.end(SessionId(1));
    sessions.attach(ConnNo(5), &one(4, 7, 50), &limits).expect("there is room again");
    sessions.check().expect("sound");
}

/// What the host has answered by itself is not known here: its number is free.
#[test]
fn numbers_may_be_left_out_and_are_new_later() {
    let mut sessions = attached();
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(3)), Turn::New);
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(1)), Turn::New, "it was never made");
    sessions.replied(SESSION, CallNo(1), Answer::Done);
    sessions.hear(ConnNo(1), CallNo(2));
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(1)), Turn::Heard);
    assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(2)), Turn::Heard, "it has heard of that");
    sessions.check().expect("sound");
}

#[test]
fn without_sessions_a_connection_is_one() {
    let mut sessions = Sessions::default();
    let plain = Hello { means: Means::Connection, ..hello() };
    sessions.attach(ConnNo(1), &plain, &Limits::default()).expect("it is new");
    sessions.call(ConnNo(1), CallNo(1), false).expect("the first");
    sessions.opened(SESSION, CallNo(1), RequestNo(3));
    assert_eq!(sessions.detach(5, ConnNo(1)), Some(SESSION));
    assert_eq!(sessions.end(SESSION), [RequestNo(3)]);
    assert_eq!(sessions, Sessions::default(), "nothing is left");
    sessions.attach(ConnNo(2), &plain, &Limits::default()).expect("it is new");
    assert_eq!(sessions.detach_all(5), [SESSION]);
}

#[test]
fn a_client_cannot_fill_the_memory() {
    let mut sessions = attached();
    for call in 1..=UNACKNOWLEDGED_MAX as u64 {
        assert_eq!(turn(&mut sessions, ConnNo(1), CallNo(call)), Turn::New);
        sessions.replied(SESSION, CallNo(call), Answer::Done);
    }
    let next = CallNo(UNACKNOWLEDGED_MAX as u64 + 1);
    assert_eq!(sessions.call(ConnNo(1), next, false), Err(Wrong::TooMany));
    sessions.hear(ConnNo(1), CallNo(u64::MAX));
    assert_eq!(turn(&mut sessions, ConnNo(1), next), Turn::New);
    sessions.check().expect("nobody has heard of what was not made");
}

/// Whoever has many sessions cannot either; and giving back is always taken.
#[test]
fn a_user_cannot_fill_the_memory_with_many_sessions() {
    let mut sessions = Sessions::default();
    let mut last = 0;
    for number in 0..UNACKNOWLEDGED_OF_USER_MAX.div_ceil(UNACKNOWLEDGED_MAX) as u64 {
        let (id, conn) = (SessionId(number.into()), ConnNo(number));
        let one = Hello { session: id, ..hello() };
        sessions.attach(conn, &one, &Limits::default()).expect("it is new");
        for call in 1..=UNACKNOWLEDGED_MAX as u64 {
            assert_eq!(turn(&mut sessions, conn, CallNo(call)), Turn::New);
            sessions.replied(id, CallNo(call), Answer::Done);
        }
        last = number;
    }
    let (conn, call) = (ConnNo(last + 1), CallNo(1));
    let one = Hello { session: SessionId(u128::from(last) + 1), ..hello() };
    sessions.attach(conn, &one, &Limits::default()).expect("it is new");
    assert_eq!(sessions.call(conn, call, false), Err(Wrong::TooManyOfUser));
    let bytes = postcard::to_allocvec(&sessions).expect("in bytes");
    let mut again: Sessions = postcard::from_bytes(&bytes).expect("the same again");
    assert_eq!(again, sessions, "after a start, too");
    assert_eq!(again.call(conn, call, false), Err(Wrong::TooManyOfUser));
    let other = Hello { session: SessionId(u128::MAX), uid: 1001, ..hello() };
    sessions.attach(ConnNo(u64::MAX), &other, &Limits::default()).expect("it is new");
    assert_eq!(turn(&mut sessions, ConnNo(u64::MAX), call), Turn::New, "it is another user's");
    assert!(matches!(sessions.call(conn, call, true), Ok((_, Turn::New))), "it gives back");
    sessions.check().expect("sound");
    sessions.end(SessionId(0));
    assert_eq!(turn(&mut sessions, conn, CallNo(2)), Turn::New, "there is room again");
    for number in 0..=last + 1 {
        sessions.end(SessionId(number.into()));
    }
    sessions.end(SessionId(u128::MAX));
    assert_eq!(sessions, Sessions::default(), "nothing is left");
}

/// What happens between a client and its cell.
#[derive(Clone, Debug)]
enum Step {
    /// The client makes a call.
    Make,
    /// The next message arrives at the cell, or at the client.
    ToCell,
    ToClient,
    /// The next message to the cell is answered by the host.
    Refuse,
    /// The oldest call that is being done is done, as a request or with a reply.
    Do {
        opens: bool,
    },
    /// The oldest request is over.
    Over,
    /// The connection breaks, and the client comes back over a new one.
    Reconnect,
    /// The agent starts again, with what is on disk.
    Restart,
    /// The client says what it has heard.
    Acknowledge,
}

/// A client, its connection, and what the cell has done.
#[derive(Default)]
struct World {
    sessions: Sessions,
    conn: u64,
    made: u64,
    /// Calls without a reply, which are made again after a break.
    unanswered: Vec<u64>,
    heard: u64,
    answered: BTreeMap<u64, usize>,
    to_cell: Vec<u64>,
    to_client: Vec<u64>,
    pending: Vec<u64>,
    open: Vec<u64>,
    /// How often each call was done.
    done: BTreeMap<u64, usize>,
    /// Those that the host has answered.
    refused: BTreeSet<u64>,
}

impl World {
    fn attach(&mut self) {
        self.conn += 1;
        self.to_cell.clear();
        self.to_client.clear();
        let hello = Hello { returns: self.conn > 1, heard: CallNo(self.heard), ..hello() };
        let welcome = self.sessions.attach(ConnNo(self.conn), &hello, &Limits::default());
        let welcome = welcome.expect("it is known");
        self.to_client.extend(welcome.replied.iter().map(|(call, _)| call.0));
        // Some more than it must: calls may be repeated.
        self.to_cell.extend(self.unanswered.iter().copied());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Make => {
                self.made += 1;
                self.unanswered.push(self.made);
                self.to_cell.push(self.made);
            }
            Step::ToCell if !self.to_cell.is_empty() => {
                let call = self.to_cell.remove(0);
                match self
                    .sessions
                    .call(ConnNo(self.conn), CallNo(call), false)
                    .expect("in order")
                    .1
                {
                    Turn::New => self.pending.push(call),
                    Turn::Replied(_) => self.to_client.push(call),
                    Turn::Open(_) | Turn::Pending | Turn::Heard => {}
                }
            }
            Step::Refuse if !self.to_cell.is_empty() => {
                let call = self.to_cell.remove(0);
                let is_new = self.sessions.is_new(SESSION, CallNo(call));
                if is_new && !self.pending.contains(&call) {
                    self.refused.insert(call);
                    self.to_client.push(call);
                }
            }
            Step::ToClient if !self.to_client.is_empty() => {
                let call = self.to_client.remove(0);
                self.unanswered.retain(|unanswered| *unanswered != call);
                *self.answered.entry(call).or_default() += 1;
            }
            Step::Do { opens } if !self.pending.is_empty() => {
                let call = self.pending.remove(0);
                *self.done.entry(call).or_default() += 1;
                if *opens {
                    self.open.push(call);
                    self.sessions.opened(SESSION, CallNo(call), RequestNo(call));
                } else {
                    self.reply(call);
                }
            }
            Step::Over if !self.open.is_empty() => {
                let call = self.open.remove(0);
                self.reply(call);
            }
            Step::Reconnect => {
                self.sessions.detach(0, ConnNo(self.conn));
                self.attach();
            }
            Step::Restart => {
                let bytes = postcard::to_allocvec(&self.sessions).expect("in bytes");
                self.sessions = postcard::from_bytes(&bytes).expect("the same again");
                self.sessions.detach_all(0);
                self.attach();
            }
            Step::Acknowledge => {
                let first = self.unanswered.first().copied().unwrap_or(self.made + 1);
                self.heard = first - 1;
                self.sessions.hear(ConnNo(self.conn), CallNo(self.heard));
            }
            _ => {}
        }
        self.sessions.check().expect("sound");
    }

    fn reply(&mut self, call: u64) {
        self.sessions.replied(SESSION, CallNo(call), Answer::Done);
        if self.sessions.connection(SESSION).is_some() {
            self.to_client.push(call);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Whatever breaks, every call is done once, and its client hears of it.
    #[test]
    fn every_call_is_done_once_and_answered(steps in prop::collection::vec(prop_oneof![
        5 => Just(Step::Make),
        5 => Just(Step::ToCell),
        1 => Just(Step::Refuse),
        5 => Just(Step::ToClient),
        4 => any::<bool>().prop_map(|opens| Step::Do { opens }),
        2 => Just(Step::Over),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Restart),
        2 => Just(Step::Acknowledge),
    ], 1..120)) {
        let mut world = World::default();
        world.attach();
        for step in &steps {
            world.step(step);
        }
        // In the end nothing breaks any more.
        world.step(&Step::Reconnect);
        for step in [Step::ToCell, Step::Do { opens: false }, Step::Over, Step::ToClient] {
            for _ in 0..2 * steps.len() {
                world.step(&step);
            }
        }
        prop_assert!(world.unanswered.is_empty(), "{:?}", world.unanswered);
        let all = world.done.keys().chain(&world.refused).collect::<BTreeSet<_>>();
        prop_assert_eq!(all.len() as u64, world.made);
        prop_assert!(world.done.values().all(|times| *times == 1), "{:?}", world.done);
        world.step(&Step::Acknowledge);
        let session = &world.sessions.sessions[&SESSION];
        prop_assert!(session.outcomes.is_empty(), "{:?}", session.outcomes);
    }
}
