//! The resource allocator of the paper's introduction: of a row of resources, whoever comes takes
//! some, nobody waits, and the first 2k-1 are used if k come. Each begins with the one it knows to
//! be its own at once, and takes the others as they are announced.
//!
//! `cargo run -p holdall-assign --example allocator -- 4`

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::thread;

use holdall_assign::paper::Assignment;

fn main() {
    let clients = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(4);
    let assignment = Assignment::single_use(clients);
    // Who uses which resource: at most one each, or this panics.
    let users: Mutex<BTreeMap<u64, usize>> = Mutex::default();
    let use_it = |resource, client| {
        let mut users = users.lock().unwrap_or_else(PoisonError::into_inner);
        let user = *users.entry(resource).or_insert(client);
        assert_eq!(user, client, "resource {resource} is used by two");
    };
    thread::scope(|scope| {
        for client in 0..clients {
            let (assignment, use_it) = (&assignment, &use_it);
            scope.spawn(move || {
                let Ok(mut participant) = assignment.participant(client);
                let first = participant.enter().expect("its only operation");
                use_it(first, client);
                // What it says is so for whoever asks: its own second one, or another client's.
                for (resource, owner) in participant.announce() {
                    use_it(resource, owner);
                }
            });
        }
    });
    let users = users.into_inner().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(users.len(), 2 * clients - 1, "no resource is left over");
    for (resource, client) in users {
        println!("resource {resource}: client {client}");
    }
}
