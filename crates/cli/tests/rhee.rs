//! Rhee's queues of positions as a person checks them: `rhee:S`, `rhee+:S`, `skr` and `walk` at
//! pinned counts, what each of their rules is for, and the paper's figures as they are printed.

mod common;

use common::{check, violated};

/// A scope, and its states.
const PINNED: &[(&str, &str, u64)] = &[
    ("rhee:chandy-misra", "1 0/0/0", 2642),
    ("rhee:chandy-misra", "1 0,0/0,0", 849),
    ("rhee:chandy-misra", "1,1 0+1/1+0", 497),
    ("rhee:chandy-misra", "1,1 0+1,1/1+0,0", 3395),
    ("rhee:chandy-misra", "1,1 0+1/1+0/0", 10202),
    ("rhee:chandy-misra", "1,1,1 0+1/1+2/2+0", 22310),
    ("rhee:chandy-misra", "2 0:2/0/0", 2888),
    ("rhee:chandy-misra", "2,1 0:2+1/0+1/0", 11090),
    ("rhee:chandy-misra", "1 0*/0*", 192),
    ("rhee:chandy-misra", "1 0*/0*/0*", 20874),
    ("rhee:chandy-misra", "1,1 0+1*/1+0*", 2536),
    ("rhee:chandy-misra", "1,1 0+1*/0*/1*", 12746),
    ("rhee:chandy-misra", "2 0:2*/0*/0*", 14214),
    ("rhee+:chandy-misra", "1 0/0/0", 2564),
    ("rhee+:chandy-misra", "1 0,0/0,0", 1079),
    ("rhee+:chandy-misra", "1,1 0+1/1+0", 459),
    ("rhee+:chandy-misra", "1,1 0+1,1/1+0,0", 5817),
    ("rhee+:chandy-misra", "1,1 0+1/1+0/0", 9798),
    ("rhee+:chandy-misra", "1,1,1 0+1/1+2/2+0", 24056),
    ("rhee+:chandy-misra", "2 0:2/0/0", 2650),
    ("rhee+:chandy-misra", "2,1 0:2+1/0+1/0", 9698),
    ("rhee+:chandy-misra", "1 0*/0*", 218),
    ("rhee+:chandy-misra", "1 0*/0*/0*", 22062),
    ("rhee+:chandy-misra", "1,1 0+1*/1+0*", 2872),
    ("rhee+:chandy-misra", "1,1 0+1*/0*/1*", 14585),
    ("rhee+:chandy-misra", "2 0:2*/0*/0*", 13430),
    ("rhee:choy-singh", "1 0,0/0,0", 28077),
    ("rhee:choy-singh", "1,1 0+1/1+0", 6131),
    ("rhee:choy-singh", "1 0*/0*", 3683),
    ("rhee+:choy-singh", "1 0,0/0,0", 37899),
    ("rhee+:choy-singh", "1,1 0+1/1+0", 5523),
    ("rhee+:choy-singh", "1 0*/0*", 4037),
    ("rhee:skeen", "1 0/0/0", 3231),
    ("rhee:skeen", "1 0,0/0,0", 2209),
    ("rhee:skeen", "1,1 0+1/1+0", 4520),
    ("rhee:skeen", "1,1 0+1,1/1+0,0", 28160),
    ("rhee:skeen", "1,1 0+1/1+0/0", 70653),
    ("rhee:skeen", "2 0:2/0/0", 3469),
    ("rhee:skeen", "2,1 0:2+1/0+1/0", 74621),
    ("rhee:skeen", "1 0*/0*", 406),
    ("rhee:skeen", "1 0*/0*/0*", 13664),
    ("rhee:skeen", "1,1 0+1*/1+0*", 12646),
    ("rhee:skeen", "2 0:2*/0*/0*", 9676),
    ("rhee:skeen", "1,1 0+1^/1+0^", 15328),
    ("rhee+:skeen", "1 0/0/0", 3111),
    ("rhee+:skeen", "1 0,0/0,0", 3047),
    ("rhee+:skeen", "1,1 0+1/1+0", 4216),
    ("rhee+:skeen", "1,1 0+1,1/1+0,0", 51542),
    ("rhee+:skeen", "1,1 0+1/1+0/0", 66915),
    ("rhee+:skeen", "2 0:2/0/0", 3206),
    ("rhee+:skeen", "2,1 0:2+1/0+1/0", 67050),
    ("rhee+:skeen", "1 0*/0*", 468),
    ("rhee+:skeen", "1 0*/0*/0*", 14774),
    ("rhee+:skeen", "1,1 0+1*/1+0*", 13800),
    ("rhee+:skeen", "2 0:2*/0*/0*", 9428),
    ("rhee+:skeen", "1,1 0+1^/1+0^", 19968),
    ("rhee:ordered", "1 0/0/0", 1629),
    ("rhee:ordered", "1 0,0/0,0", 1429),
    ("rhee:ordered", "1,1 0+1/1+0", 1259),
    ("rhee:ordered", "1,1 0+1,1/1+0,0", 9659),
    ("rhee:ordered", "1,1 0+1/1+0/0", 13317),
    ("rhee:ordered", "1,1,1 0+1/1+2/2+0", 69747),
    ("rhee:ordered", "2 0:2/0/0", 1823),
    ("rhee:ordered", "2,1 0:2+1/0+1/0", 14213),
    ("rhee:ordered", "1 0*/0*", 294),
    ("rhee:ordered", "1 0*/0*/0*", 8276),
    ("rhee:ordered", "1,1 0+1*/1+0*", 7092),
    ("rhee:ordered", "1,1 0+1*/0*/1*", 27891),
    ("rhee:ordered", "2 0:2*/0*/0*", 5464),
    ("rhee:ordered", "1,1 0+1/1+0 --departures", 18286),
    ("rhee:ordered", "1,1 0+1^/1+0^", 9398),
    ("rhee+:ordered", "1 0/0/0", 1533),
    ("rhee+:ordered", "1 0,0/0,0", 1843),
    ("rhee+:ordered", "1,1 0+1/1+0", 1107),
    ("rhee+:ordered", "1,1 0+1,1/1+0,0", 16149),
    ("rhee+:ordered", "1,1 0+1/1+0/0", 12051),
    ("rhee+:ordered", "1,1,1 0+1/1+2/2+0", 70977),
    ("rhee+:ordered", "2 0:2/0/0", 1624),
    ("rhee+:ordered", "2,1 0:2+1/0+1/0", 11729),
    ("rhee+:ordered", "1 0*/0*", 336),
    ("rhee+:ordered", "1 0*/0*/0*", 8978),
    ("rhee+:ordered", "1,1 0+1*/1+0*", 7690),
    ("rhee+:ordered", "1,1 0+1*/0*/1*", 31078),
    ("rhee+:ordered", "2 0:2*/0*/0*", 5408),
    ("rhee+:ordered", "1,1 0+1/1+0 --departures", 14988),
    ("rhee+:ordered", "1,1 0+1/1+0/0 --crash 0", 70707),
    ("rhee+:ordered", "1,1 0+1^/1+0^", 12602),
    ("rhee:chandy-misra-drinking", "1 0,0/0,0", 7391),
    ("rhee:chandy-misra-drinking", "1,1 0+1/1+0", 5185),
    ("rhee:chandy-misra-drinking", "1,1 0+1,1/1+0,0", 31731),
    ("rhee:chandy-misra-drinking", "1 0*/0*", 1324),
    ("rhee:chandy-misra-drinking", "1,1 0+1*/1+0*", 20976),
    ("rhee+:chandy-misra-drinking", "1 0,0/0,0", 9531),
    ("rhee+:chandy-misra-drinking", "1,1 0+1/1+0", 4881),
    ("rhee+:chandy-misra-drinking", "1 0*/0*", 1480),
    ("rhee+:chandy-misra-drinking", "1,1 0+1*/1+0*", 23436),
    ("skr", "1 0/0/0", 1401),
    ("skr", "1 0,0/0,0", 1319),
    ("skr", "1,1 0+1/1+0", 1500),
    ("skr", "1,1 0+1,1/1+0,0", 12500),
    ("skr", "1,1 0+1/1+0/0", 21927),
    ("skr", "1,1,1 0+1/1+2/2+0", 72101),
    ("skr", "2 0:2/0/0", 1421),
    ("skr", "2,1 0:2+1/0+1/0", 21733),
    ("skr", "1 0*/0*", 214),
    ("skr", "1 0*/0*/0*", 6032),
    ("skr", "1,1 0+1*/1+0*", 4506),
    ("skr", "2 0:2*/0*/0*", 3920),
    ("skr", "1,1 0+1/1+0 --departures", 12251),
    ("skr", "1,1 0+1/1+0/0 --crash 0", 47721),
    ("skr", "1,1 0/0+1/1 --crash 1 --amid", 12384),
    ("skr", "1,1 0+1^/1+0^", 6140),
    ("walk", "1 0/0/0", 603),
    ("walk", "1 0,0/0,0", 763),
    ("walk", "1,1 0+1/1+0", 217),
    ("walk", "1,1 0+1,1/1+0,0", 3243),
    ("walk", "1,1 0+1/1+0/0", 2301),
    ("walk", "1,1,1 0+1/1+2/2+0", 6884),
    ("walk", "2 0:2/0/0", 627),
    ("walk", "2,1 0:2+1/0+1/0", 2177),
    ("walk", "1 0*/0*", 138),
    ("walk", "1 0*/0*/0*", 3368),
    ("walk", "1,1 0+1*/1+0*", 1536),
    ("walk", "1,1 0+1*/0*/1*", 5417),
    ("walk", "2 0:2*/0*/0*", 2032),
    ("walk", "3 0:2*/0*/0*/0*", 42026),
    ("walk", "1,1 0+1/1+0 --departures", 1064),
    ("walk", "1,1 0+1/1+0/0 --crash 0", 7027),
    ("walk", "1,1 0/0+1/1 --crash 1 --amid", 4801),
    ("walk", "1,1 0+1^/1+0^", 2536),
    ("walk:agent", "1 0/0/0", 180),
    ("walk:agent", "1 0,0/0,0", 141),
    ("walk:agent", "1,1 0+1/1+0", 111),
    ("walk:agent", "1,1 0+1,1/1+0,0", 575),
    ("walk:agent", "1,1 0+1/1+0/0", 706),
    ("walk:agent", "1,1,1 0+1/1+2/2+0", 1813),
    ("walk:agent", "2 0:2/0/0", 228),
    ("walk:agent", "2,1 0:2+1/0+1/0", 785),
    ("walk:agent", "1 0*/0*", 22),
    ("walk:agent", "1 0*/0*/0*", 98),
    ("walk:agent", "1,1 0+1*/1+0*", 1040),
    ("walk:agent", "1,1 0+1*/0*/1*", 762),
    ("walk:agent", "2 0:2*/0*/0*", 134),
    ("walk:agent", "3 0:2*/0*/0*/0*", 1516),
];

/// The arguments of a check: the protocol, and a scope written as on a command line.
fn arguments<'a>(protocol: &'a str, scope: &'a str) -> Vec<&'a str> {
    let mut words = scope.split(' ');
    let (pools, users) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    [protocol, "--pools", pools, "--users", users].into_iter().chain(words).collect()
}

#[test]
fn all_of_them_keep_their_promises_at_pinned_counts() {
    for (protocol, scope, states) in PINNED {
        let (code, reports) = check(&arguments(protocol, scope));
        assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "{protocol} {scope}");
        assert_eq!(reports[0]["states"].as_u64(), Some(*states), "{protocol} {scope}");
    }
}

/// Rules of the queues, which all protocols have that are built on them; a scope in which each
/// matters, and what is lost.
const SHARED: &[(&str, &str, &str)] = &[
    ("behind", "1 0/0/0", "local"),
    ("front", "1 0/0", "local"),
    ("align", "1,1 0+1/1+0", "local"),
    ("early", "1 0/0 --departures", "no-residue"),
    ("purge", "1 0/0 --crash 0", "no-deadlock"),
];

/// The same for rules that some have.
const MUTANTS: &[(&str, &str, &str, &str)] = &[
    ("rhee:chandy-misra", "guard", "1 0/0", "local"),
    ("rhee+:chandy-misra", "guard", "1 0/0", "local"),
    ("rhee:chandy-misra", "behind", "1 0/0/0", "local"),
    ("rhee+:chandy-misra", "behind", "1 0/0/0", "exclusion"),
    ("rhee+:ordered", "frozen", "1 0,0/0,0", "exclusion"),
    ("skr", "frozen", "1 0,0/0,0", "exclusion"),
    ("skr", "latest", "1,1 0+1/1+0", "no-deadlock"),
    ("skr", "tentative", "1,1 0+1/1+0", "no-deadlock"),
    ("skr", "ties", "1,1 0+1/1+0", "no-deadlock"),
    ("skr", "hear", "1,1 0+1/1+0", "no-deadlock"),
    ("walk", "frozen", "1 0,0/0,0", "exclusion"),
    ("walk", "turn", "3 0:2*/0*/0*/0*", "no-starvation"),
    ("walk", "ascend", "1,1 0+1/1+0", "no-deadlock"),
    ("walk:agent", "ascend", "1,1 0+1/1+0", "no-deadlock"),
    ("walk:agent", "frozen", "1,1 0+1,0+1/1+0,0+1", "local"),
    ("walk:agent", "turn", "3 0:2*/0*/0*/0*", "no-starvation"),
];

#[test]
fn every_rule_taken_away_is_missed() {
    let shared =
        ["rhee:ordered", "rhee+:ordered", "skr", "walk"].into_iter().flat_map(|protocol| {
            SHARED.iter().map(move |(rule, scope, lost)| (protocol, *rule, *scope, *lost))
        });
    for (protocol, rule, scope, lost) in shared.chain(MUTANTS.iter().copied()) {
        let sound = arguments(protocol, scope);
        assert_eq!(check(&sound).0, 0, "{protocol} with {rule}");
        let (code, reports) = check(&[&sound[..], &["--without", rule]].concat());
        assert_eq!(code, 1, "{protocol} without {rule}");
        let found = violated(&reports[0], true);
        assert!(found.iter().any(|(name, _)| name == lost), "{protocol} without {rule}: {found:?}");
    }
}

/// A defect of the figures as they are printed, a scope that shows it, and what is lost.
const PRINTED: &[(&str, &str, &str)] = &[
    ("d1", "1 0/0", "all-or-nothing"),
    ("d2", "1 0/0", "exclusion"),
    ("d3", "1 0/0/0", "exclusion"),
    ("d4", "1 0,0/0,0", "no-deadlock"),
];

#[test]
fn each_defect_of_the_printed_figures_shows() {
    for subroutine in ["rhee:chandy-misra", "rhee:ordered"] {
        for (defect, scope, lost) in PRINTED {
            let all = arguments(subroutine, scope);
            let printed = ["--as-printed", defect, "--max-states", "20000"];
            let (code, reports) = check(&[&all[..], &printed].concat());
            let found = violated(&reports[0], true);
            assert!(found.iter().any(|(name, _)| name == lost), "{subroutine} {defect}: {found:?}");
            assert_eq!(code, 1, "{subroutine} {defect}");
        }
    }
    let (code, reports) = check(&arguments("printed-rhee:chandy-misra", "1 0/0"));
    assert_eq!((code, violated(&reports[0], true)), (0, vec![]), "all repaired");
}

#[test]
fn the_figures_repaired_have_the_states_of_the_protocol() {
    for scope in ["1 0/0/0", "1 0,0/0,0", "1,1 0+1/1+0", "1,1 0+1,1/1+0,0"] {
        let states = |protocol| check(&arguments(protocol, scope)).1[0]["states"].clone();
        assert_eq!(states("printed-rhee:chandy-misra"), states("rhee:chandy-misra"), "{scope}");
    }
}

#[test]
fn a_user_whose_neighbours_want_something_else_is_served() {
    let other = "1,1 0,1!/1";
    for protocol in ["rhee:chandy-misra", "rhee+:chandy-misra", "rhee:ordered", "skr", "walk"] {
        let (code, reports) = check(&arguments(protocol, other));
        assert_eq!((code, violated(&reports[0], false)), (0, vec![]), "{protocol}: Theorem 5.11");
        let (code, reports) = check(&arguments(protocol, "1,1 1!/0+1/0"));
        let lost = violated(&reports[0], false);
        assert_eq!((code, lost), (0, vec![("concurrency".into(), Some(2))]), "{protocol}");
    }
    let (_, reports) = check(&arguments("chandy-misra", other));
    assert!(!violated(&reports[0], false).is_empty(), "the diners alone wait for neighbours");
}

#[test]
fn a_name_says_which_subroutine() {
    let code = |name| check(&arguments(name, "1 0/0")).0;
    assert_eq!((code("rhee:skeen"), code("rhee+:skeen")), (0, 0));
    for name in ["rhee", "rhee:", "rhee+", "rhee:skeen:x", "rhee:rhee:skeen", "walk:x", "skr:x"] {
        assert_eq!(code(name), 64, "{name}");
    }
}
