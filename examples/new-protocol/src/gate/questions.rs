//! What to find out about the gate besides what it promises.

use holdall_commands::Question;

use super::Gate;

pub const QUESTIONS: &[Question<Gate>] = &[
    Question::always("nobody queues for what is free", |_, system| {
        system.managers.iter().all(|manager| !manager.could_serve())
    }),
    Question::sometime("two are in the room", |_, system| {
        system.users.iter().filter(|user| user.is_in_the_room()).count() == 2
    }),
    Question::sometime("two use what they have", |_, system| {
        system.users.iter().filter(|user| user.has_all()).count() == 2
    }),
];
