//! Protocols are found by name, and roles come back from what they wrote down.

use holdall_registry::Chosen;
use holdall_registry::roles::comes_back;
use serde::{Deserialize, Serialize};

#[test]
fn a_name_is_found_or_a_near_one_suggested() {
    assert!(Chosen::new("coordinator:reserve=7", &[]).is_ok());
    let no = |name: &str| Chosen::new(name, &[]).expect_err("no such name").to_string();
    assert_eq!(no("orderd"), "no protocol 'orderd'; did you mean 'ordered'?");
    assert!(no("coordinator:fast").contains("no variant 'fast'"));
    assert!(no("ordered:x").contains("no variant 'x'"));
    assert!(no("skeen:x").contains("no variants"));
    assert!(no("%%%%").contains("lists them"));
    let typed = |defects: &[&str]| {
        let defects: Vec<String> = defects.iter().map(|defect| (*defect).into()).collect();
        Chosen::as_printed("datta", &defects).expect("kept").as_typed()
    };
    assert_eq!(typed(&["d1", "d2"]), "datta --as-printed d1,d2");
    assert_eq!(typed(&[]), "datta --as-printed");
    let without = Chosen::new("ordered", &["sorted".into()]).expect("a rule");
    assert_eq!(without.as_typed(), "ordered --without sorted");
    let not_kept = Chosen::as_printed("ordered", &[]).expect_err("no paper of ours prints it");
    assert!(not_kept.to_string().starts_with("no paper's text of 'ordered'"), "{not_kept}");
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Forgetful {
    queue: Vec<u32>,
    #[serde(skip)]
    waiting: bool,
}

#[test]
fn what_is_not_written_down_is_missed() {
    let role = |waiting| Forgetful { queue: vec![1, 2], waiting };
    assert_eq!(comes_back(&role(false)), Ok(()));
    let lost = comes_back(&role(true)).expect_err("it forgets");
    assert!(lost.starts_with("comes back from what it wrote down as Forgetful"), "{lost}");
}
