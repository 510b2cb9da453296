//! What people write: needs, names, spans, numbers, tokens, and plans of jobs.

use holdall_links::{CellId, CellName};
use holdall_wire::{Name, Need, RequestNo};

/// Every notation, with the same text.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let read = [
        comes_back::<Need>(text),
        comes_back::<Name>(text),
        comes_back::<RequestNo>(text),
        comes_back::<CellName>(text),
        comes_back::<CellId>(text),
        holdall_wire::span(text).is_ok(),
        holdall_links::fuzzing::tokens(text),
        holdall_jobs::read(text, "plan").is_ok(),
    ];
    read.contains(&true)
}

/// Whether it can be read; then it is the same once it is written and read again.
fn comes_back<T: std::str::FromStr + ToString + PartialEq>(text: &str) -> bool {
    let Ok(value) = text.parse::<T>() else { return false };
    let again = value.to_string().parse::<T>().ok();
    assert!(again == Some(value), "{text:?} does not come back");
    true
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "gpu:2",
        "board/2@lab1:shared",
        "3-17",
        "lab1",
        "000000000000000000000000000000fe",
        "1.5h",
        "500ms",
        "name = 'x'\n[task.a]\nneeds = ['gpu:2']\nrun = 'make'\n[task.b]\nafter = ['a']\nrun = 'true'\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}
