use std::os::unix::fs::PermissionsExt;

use super::*;

fn lab1() -> Cell {
    Cell { id: CellId(7), name: "lab1".parse().expect("a name") }
}

fn founded() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().expect("a directory");
    let home = Home::init(&dir.path().join("cluster"), &lab1(), &["lab1:7420".into()]);
    (dir, home.expect("made"))
}

#[test]
fn a_cluster_is_made_once_and_comes_back() {
    let (_dir, home) = founded();
    let again = Home::open(&home.dir).expect("there");
    assert_eq!((again.cell(), again.pin()), (&lab1(), home.pin()));
    assert!(again.signs());
    let roster = again.roster().expect("whole");
    assert_eq!(roster.member(CellId(7)).expect("itself").addresses, ["lab1:7420"]);
    let twice = Home::init(&home.dir, &lab1(), &[]);
    assert!(matches!(twice, Err(Error::Member(_))));
    for file in [CA_KEY, CELL, MEMBERS] {
        let mode = std::fs::metadata(home.dir.join(file)).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn what_is_missing_or_damaged_is_named() {
    let (_dir, home) = founded();
    for (file, content) in [(MEMBERS, &b"holdall members 1\nxxxx"[..]), (CA, b"x"), (CELL, b"x")] {
        let path = home.dir.join(file);
        let whole = std::fs::read(&path).expect("there");
        std::fs::write(&path, content).expect("written");
        let error = Home::open(&home.dir).expect_err("damaged").to_string();
        assert!(error.contains(file), "{error}");
        std::fs::remove_file(&path).expect("there");
        assert!(Home::open(&home.dir).is_err());
        std::fs::write(&path, whole).expect("written");
    }
    Home::open(&home.dir).expect("whole again");
}

#[test]
fn the_key_goes_where_it_is_put_and_no_other() {
    let (_dir, home) = founded();
    let (_other_dir, other) = founded();
    let key = home.export_key().expect("here");
    std::fs::remove_file(home.dir.join(CA_KEY)).expect("there");
    assert!(matches!(home.add_token(Duration::from_secs(60), For::New(1)), Err(Error::NoKey)));
    let foreign = home.import_key(&other.export_key().expect("here"));
    assert!(matches!(foreign, Err(Error::Authority(ca::Error::OtherKey))));
    home.import_key(&key).expect("its own");
    assert!(home.add_token(Duration::from_secs(60), For::New(1)).is_ok());
}

#[test]
fn no_key_is_lost_to_another_cluster() {
    let (_dir, home) = founded();
    let key = home.export_key().expect("here");
    std::fs::remove_file(home.dir.join(CELL)).expect("there");
    assert!(Home::init(&home.dir, &lab1(), &[]).is_err());
    assert_eq!(home.export_key().expect("still here"), key);
    let other = Cell { id: CellId(8), ..lab1() };
    assert!(matches!(Home::certify(&home.dir, &other), Err(Error::Another(..))));
    let again = Home::certify(&home.dir, &lab1()).expect("it has the key");
    assert_eq!((again.tls().expect("good").card.cell, again.pin()), (lab1(), home.pin()));
    assert!(matches!(Home::certify(&home.dir, &lab1()), Err(Error::Member(_))));
    std::fs::remove_file(home.dir.join(CELL)).expect("there");
    std::fs::rename(home.dir.join(CA_KEY), home.dir.join("elsewhere")).expect("there");
    assert!(Home::init(&home.dir, &lab1(), &[]).is_err(), "members are known");
    assert!(matches!(Home::certify(&home.dir, &lab1()), Err(Error::NoKey)));
}

#[test]
fn tokens_are_listed_and_revoked() {
    let (_dir, home) = founded();
    let token = home.add_token(Duration::from_secs(60), For::New(1)).expect("made");
    assert_eq!(token.pin(), home.pin());
    let label = home.tokens().expect("kept")[0].label();
    assert!(matches!(home.revoke_token("nothing"), Err(Error::NoToken(_))));
    home.revoke_token(&label).expect("revoked");
    let redeemed = home.look(&token.secret, CellId(8)).expect("kept");
    assert_eq!(redeemed, Err(NoGood::Unknown));
}

#[test]
fn a_certificate_for_another_is_not_taken() {
    let (_dir, home) = founded();
    let asked = Asked::new().expect("a key");
    let other = Cell { id: CellId(8), ..lab1() };
    let foreign = home.issue(&other, &asked.request).expect("issued");
    assert!(home.renew(&asked, &foreign).is_err(), "another cell");
    let own = home.issue(&lab1(), &asked.request).expect("issued");
    assert!(home.renew(&Asked::new().expect("a key"), &own).is_err(), "another key");
    let (_other_dir, imposter) = founded();
    let forged = imposter.authority().expect("here");
    let forged = forged.issue(&lab1(), &asked.request, card::now() + 9).expect("issued");
    assert!(home.renew(&asked, &forged).is_err(), "another authority");
    let authority = home.authority().expect("here");
    let older = authority.issue(&lab1(), &asked.request, card::now() - 9).expect("issued");
    assert!(home.renew(&asked, &older).is_err(), "an older one");
    let newer = authority.issue(&lab1(), &asked.request, card::now() + 9).expect("issued");
    home.renew(&asked, &newer).expect("its own");
    assert_eq!(home.tls().expect("good").card.cell, lab1());
}

#[test]
fn addresses_have_a_port() {
    let check = |text: &str| check_addresses(&[text.to_owned()]);
    assert!(check("lab1:7420").is_ok() && check("[::1]:7420").is_ok());
    for bad in ["lab1", "lab1:", ":7420", "lab1:99999", "lab 1:7420"] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
