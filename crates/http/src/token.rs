//! Tokens: what programs on other machines show instead of a user.
//!
//! A token has a name and some rights, and counts as a user of its own: `token:NAME`, with a number that no user of
//! the machine has, so that quotas and ownership are per token. On disk there is only its hash; whoever made
//! it was shown it once. Whoever may write in the agent's directory may make tokens; the gateway notices
//! when the file has changed.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hmac_sha256::Hash;
use holdall_wire::Right;
use serde::{Deserialize, Serialize};

use crate::caller::Peer;
use crate::plain;

const FILE: &str = "tokens.json";
/// The first of the numbers that tokens have as users.
const FIRST_UID: u32 = 0xF000_0000;
/// What tokens begin with, so that people and programs that look for secrets know them.
const PREFIX: &str = "hat_";

/// How soon somebody whose token was removed is let go.
const LOOK: Duration = Duration::from_secs(1);

/// What is kept of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// What it may do.
    pub may: Vec<Right>,
    /// When it was made, in milliseconds since 1970.
    pub made: u64,
    /// Until when it is good; for good if nothing is said.
    #[serde(default)]
    pub until: Option<u64>,
    uid: u32,
    hash: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(expecting = "tokens as `holdall token` keeps them")]
struct Kept {
    /// How many were made so far: numbers are not used again.
    made: u32,
    tokens: Vec<Token>,
}

/// Why a token is not made or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A name that cannot be used.
    #[error("'{0}' is no name for a token: 1 to 64 letters, digits, `_ - .`")]
    Name(String),
    /// There is one already.
    #[error("there is a token {0} already; remove it first, or take another name")]
    Exists(String),
    /// There is none.
    #[error("there is no token {0}; `holdall token list` names them")]
    Missing(String),
    /// The file cannot be read or written.
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    File(PathBuf, io::Error),
}

/// Makes a token in the directory of an agent. What is returned is shown once and kept nowhere.
///
/// # Errors
/// If there is one of that name, or it cannot be kept.
pub fn add(data: &Path, name: &str, may: &[Right], until: Option<u64>) -> Result<String, Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(Error::Name(name.chars().take(80).collect()));
    }
    let _lock = lock(data)?;
    let mut kept = read(data)?;
    if kept.tokens.iter().any(|token| token.name == name) {
        return Err(Error::Exists(name.into()));
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::File(path(data), error.into()))?;
    let token = format!("{PREFIX}{}", hex(&bytes));
    let uid = FIRST_UID.saturating_add(kept.made);
    kept.made += 1;
    let (may, made) = (may.to_vec(), now());
    kept.tokens.push(Token { name: name.into(), may, made, until, uid, hash: hash(&token) });
    write(data, &kept)?;
    Ok(token)
}

/// The tokens of an agent, in the order made.
///
/// # Errors
/// If they cannot be read.
pub fn list(data: &Path) -> Result<Vec<Token>, Error> {
    Ok(read(data)?.tokens)
}

/// Removes a token: it is good for nothing any more.
///
/// # Errors
/// If there is none of that name, or its end cannot be kept.
pub fn remove(data: &Path, name: &str) -> Result<(), Error> {
    let _lock = lock(data)?;
    let mut kept = read(data)?;
    let before = kept.tokens.len();
    kept.tokens.retain(|token| token.name != name);
    if kept.tokens.len() == before {
        return Err(Error::Missing(name.into()));
    }
    write(data, &kept)
}

/// The tokens as those know them who let others in.
#[derive(Debug)]
pub struct Tokens {
    data: PathBuf,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The file that was last looked at, whether or not it could be read.
    version: Option<Version>,
    /// Whether it could not.
    unreadable: bool,
    /// None before it could be read, or was not there, for the first time.
    tokens: Option<Vec<Token>>,
}

/// What tells a file from one that was there before.
type Version = (u64, i64, i64, u64);

impl Tokens {
    /// Reads those in the directory of an agent, and says so in the log if they cannot be read.
    pub fn new(data: &Path) -> Self {
        let tokens = Self { data: data.to_owned(), known: Mutex::default() };
        tokens.find(|_| false);
        tokens
    }

    /// Whose token this is.
    pub fn whose(&self, token: &str) -> Option<Peer> {
        let hash = hash(token);
        self.find(|token| token.hash == hash)
    }

    /// Whose token has this name.
    pub fn named(&self, name: &str) -> Option<Peer> {
        self.find(|token| token.name == name)
    }

    /// Waits until the token of somebody was removed, or its time is over; for ever if it has come without one.
    pub async fn gone(&self, peer: &Peer) {
        if !has_come_with_one(peer) {
            return std::future::pending().await;
        }
        while !self.is_gone(peer) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Whether somebody has come with a token that was removed since, or whose time is over.
    pub(crate) fn is_gone(&self, peer: &Peer) -> bool {
        has_come_with_one(peer) && self.find(|token| token.uid == peer.uid).is_none()
    }

    /// Tells as soon as that is known, and whenever it is another one, which users have a token that is good; whoever has none of these numbers any more
    /// is not let in. Told again twice, since calls may have been under way.
    pub(crate) async fn tell(&self, hear: impl Fn(BTreeSet<u32>)) {
        let (mut told, mut again) = (None, 0);
        loop {
            let good = self.good();
            if good != told {
                (told, again) = (good, 3);
            }
            if let (Some(good), 1..) = (&told, again) {
                hear(good.clone());
                again -= 1;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The users that have a token that is good; none if the file could not be read yet.
    fn good(&self) -> Option<BTreeSet<u32>> {
        let (now, known) = (now(), self.look());
        let good = known.tokens.as_ref()?.iter().filter(|token| token.is_good(now));
        Some(good.map(|token| token.uid).collect())
    }

    /// The token that is meant, if it is good.
    fn find(&self, meant: impl Fn(&Token) -> bool) -> Option<Peer> {
        let now = now();
        let good = |token: &&Token| meant(token) && token.is_good(now);
        self.look().tokens.iter().flatten().find(good).map(Token::peer)
    }

    /// What is known, after a look at the file.
    fn look(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let version = std::fs::symlink_metadata(path(&self.data)).ok();
        let version = version.map(|it| (it.ino(), it.mtime(), it.mtime_nsec(), it.size()));
        if known.tokens.is_none() || known.version != version || known.unreadable {
            known.look(&self.data, version);
        }
        known
    }
}

fn has_come_with_one(peer: &Peer) -> bool {
    is_of_token(peer.uid) && peer.may.is_some()
}

/// Whether a user is a token, or was.
pub fn is_of_token(uid: u32) -> bool {
    uid >= FIRST_UID
}

impl Known {
    /// Reads the file. If that does not work it is said once, and those that were known are good until it does.
    fn look(&mut self, data: &Path, version: Option<Version>) {
        let told = self.unreadable && self.version == version;
        self.version = version;
        match list(data) {
            Ok(tokens) => (self.tokens, self.unreadable) = (Some(tokens), false),
            Err(error) => {
                if !told {
                    let why = "tokens are as they were before; `holdall token` makes them";
                    tracing::error!("{error}: {why}");
                }
                self.unreadable = true;
            }
        }
    }
}

impl Token {
    fn is_good(&self, now: u64) -> bool {
        self.until.is_none_or(|at| now < at)
    }

    fn peer(&self) -> Peer {
        Peer {
            uid: self.uid,
            pid: 0,
            groups: Vec::new(),
            name: Some(format!("token:{}", self.name).into()),
            may: Some(self.may.clone()),
        }
    }
}

fn path(data: &Path) -> PathBuf {
    data.join(FILE)
}

fn read(data: &Path) -> Result<Kept, Error> {
    let failed = |error| Error::File(path(data), error);
    let unreadable =
        |error: io::Error| failed(io::Error::other(format!("{error}; move it away to begin anew")));
    match plain::read(&path(data)) {
        Ok(bytes) => {
            let kept: Kept =
                serde_json::from_slice(&bytes).map_err(|why| unreadable(why.into()))?;
            match kept.tokens.iter().find(|token| !is_of_token(token.uid)) {
                None => Ok(kept),
                Some(token) => {
                    let why = format!("the token {} has the number of a user", token.name);
                    Err(unreadable(io::Error::other(why)))
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
        Err(error) => Err(failed(error)),
    }
}

/// Whoever changes the tokens does so alone.
fn lock(data: &Path) -> Result<File, Error> {
    let at = data.join("tokens.lock");
    let locked = || {
        let file = plain::open(private().truncate(false), &at)?;
        give_to_owner(data, &file)?;
        file.lock()?;
        Ok(file)
    };
    locked().map_err(|error| Error::File(at.clone(), error))
}

fn write(data: &Path, kept: &Kept) -> Result<(), Error> {
    let new = data.join("tokens.json.new");
    let written = || {
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = plain::open(private().create_new(true), &new)?;
        file.write_all(serde_json::to_string_pretty(kept)?.as_bytes())?;
        give_to_owner(data, &file)?;
        file.sync_all()?;
        std::fs::rename(&new, path(data))
    };
    written().map_err(|error| {
        // There may have been room for its name alone.
        let _ = std::fs::remove_file(&new);
        Error::File(path(data), error)
    })
}

/// What root makes in the directory of another user's agent is that user's; what that user has linked
/// there from elsewhere is not.
fn give_to_owner(data: &Path, file: &File) -> io::Result<()> {
    let (dir, own) = (std::fs::metadata(data)?, file.metadata()?);
    if dir.uid() == own.uid() {
        return Ok(());
    }
    if !own.is_file() || own.nlink() != 1 {
        return Err(io::Error::other("it is a link, or no file"));
    }
    fchown(file, Some(dir.uid()), Some(dir.gid()))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600);
    options
}

fn hash(token: &str) -> String {
    hex(&Hash::hash(token.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_from_its_making_to_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        assert_eq!(tokens.whose("hat_anything"), None);
        let ci = add(dir.path(), "ci", &[Right::View, Right::Ask], None).expect("made");
        let page = add(dir.path(), "page", &[Right::View], None).expect("made");
        let peer = tokens.whose(&ci).expect("it is good at once");
        assert_eq!(peer.name.as_deref(), Some("token:ci"));
        assert_eq!(peer.may, Some(vec![Right::View, Right::Ask]));
        assert_ne!(tokens.whose(&page).expect("the other").uid, peer.uid);
        let kept = std::fs::read_to_string(path(dir.path())).expect("kept");
        assert!(!kept.contains(&ci[PREFIX.len()..]), "only its hash is on disk");
        let mode = std::fs::metadata(path(dir.path())).expect("kept").mode();
        assert_eq!(mode & 0o777, 0o600);
        remove(dir.path(), "ci").expect("removed");
        assert_eq!(tokens.whose(&ci), None);
        let again = add(dir.path(), "ci", &[Right::View], None).expect("made");
        let uid = tokens.whose(&again).expect("good").uid;
        assert!(uid > peer.uid + 1, "what the old one held is not that of the new one");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let theirs = dir.path().join("theirs");
        std::fs::write(&theirs, "precious").expect("written");
        let link = |name: &str| std::os::unix::fs::symlink(&theirs, dir.path().join(name));
        link("tokens.json.new").expect("a link");
        add(dir.path(), "ci", &[], None).expect("made in its place");
        std::fs::remove_file(dir.path().join("tokens.lock")).expect("it is there");
        link("tokens.lock").expect("a link");
        assert!(matches!(add(dir.path(), "page", &[], None), Err(Error::File(..))));
        assert_eq!(std::fs::read_to_string(&theirs).expect("there"), "precious");
    }

    #[test]
    fn what_is_no_plain_file_is_not_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let ci = add(dir.path(), "ci", &[Right::View], None).expect("made");
        assert!(tokens.whose(&ci).is_some());
        std::fs::remove_file(path(dir.path())).expect("removed");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path(dir.path()), mode).expect("a FIFO");
        assert!(tokens.whose(&ci).is_some() && tokens.whose("hat_other").is_none());
        let told = add(dir.path(), "page", &[], None).expect_err("refused").to_string();
        assert!(told.contains("tokens.json: it is no plain file"), "{told}");
    }

    #[test]
    fn what_is_no_token_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(add(dir.path(), "", &[], None), Err(Error::Name(_))));
        assert!(matches!(add(dir.path(), "a/b", &[], None), Err(Error::Name(_))));
        add(dir.path(), "ci", &[], None).expect("made");
        assert!(matches!(add(dir.path(), "ci", &[], None), Err(Error::Exists(_))));
        assert!(matches!(remove(dir.path(), "none"), Err(Error::Missing(_))));
        let old = add(dir.path(), "old", &[Right::View], Some(1)).expect("made");
        assert_eq!(Tokens::new(dir.path()).whose(&old), None, "its time is over");
    }

    #[test]
    fn no_token_is_a_user_of_the_machine() {
        let dir = tempfile::tempdir().expect("a directory");
        let ci = add(dir.path(), "ci", &[Right::View], None).expect("made");
        let kept = std::fs::read_to_string(path(dir.path())).expect("kept");
        let forged = kept.replace(&FIRST_UID.to_string(), "0");
        std::fs::write(path(dir.path()), forged).expect("written");
        assert_eq!(Tokens::new(dir.path()).whose(&ci), None);
        let told = list(dir.path()).expect_err("refused").to_string();
        assert!(told.contains("the token ci has the number of a user"), "{told}");
    }

    #[test]
    fn what_cannot_be_kept_leaves_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(path(dir.path())).expect("in the way");
        let kept = Kept::default();
        write(dir.path(), &kept).expect_err("there is a directory");
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
    }

    #[test]
    fn which_tokens_are_good_is_not_known_before_their_file_could_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(Tokens::new(dir.path()).good(), Some(BTreeSet::new()), "there are none");
        add(dir.path(), "ci", &[Right::View], None).expect("made");
        let kept = std::fs::read(path(dir.path())).expect("kept");
        std::fs::write(path(dir.path()), "half").expect("written");
        let tokens = Tokens::new(dir.path());
        assert_eq!(tokens.good(), None);
        std::fs::write(path(dir.path()), kept).expect("written");
        assert_eq!(tokens.good().map(|good| good.len()), Some(1));
    }

    #[test]
    fn tokens_are_good_although_their_file_cannot_be_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let tokens = Tokens::new(dir.path());
        let ci = add(dir.path(), "ci", &[Right::View], None).expect("made");
        assert!(tokens.whose(&ci).is_some());
        let kept = std::fs::read(path(dir.path())).expect("kept");
        std::fs::write(path(dir.path()), "half").expect("written");
        assert!(tokens.whose(&ci).is_some(), "it was not removed");
        std::fs::write(path(dir.path()), kept).expect("written");
        remove(dir.path(), "ci").expect("removed");
        assert!(tokens.whose(&ci).is_none());
    }
}
