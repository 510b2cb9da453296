//! Waiting for whatever has ended. By itself, since it takes the children of everybody in a process.

use std::time::Duration;

use holdall_holders::{Command, Ended, SigSet, Start};

#[test]
fn the_end_of_a_command_is_told_whatever_its_group() {
    for own_group in [true, false] {
        let command = Command {
            words: ["sh", "-c", "exit 4"].map(Into::into).to_vec(),
            variables: Vec::new(),
            mask: SigSet::empty(),
            own_group,
            dies_with_us: true,
            stands_still: true,
        };
        let mut child = command.start(Start::Gated).expect("it starts");
        assert_eq!(child.reap().expect("told"), None);
        child.let_go();
        let mut ended = None;
        while ended.is_none() {
            std::thread::sleep(Duration::from_millis(2));
            ended = child.reap().expect("told");
        }
        assert_eq!(ended, Some(Ended::Code(4)), "own group: {own_group}");
    }
}
