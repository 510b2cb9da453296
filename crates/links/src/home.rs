//! The directory of a member: who it is, whom it believes, whom it knows.
//!
//! | file | what |
//! |---|---|
//! | `ca.pem` | the certificate of the authority |
//! | `ca.key` | its key; only with members that sign |
//! | `cell.pem` | the own key and certificate, in one file so that they always belong together |
//! | `members` | the records of all members ([`crate::member`]) |
//! | `tokens` | join tokens ([`crate::token`]); only with members that sign |
//!
//! `cell.pem` is written last: as long as it is missing, the machine is no member.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::ca::{self, Authority, Pin};
use crate::card::{self, Card};
use crate::cell::{Cell, CellId};
use crate::member::{self, Record, Roster};
use crate::store;
use crate::tls::{self, Tls};
use crate::token::{For, Good, JoinToken, Kept, NoGood, Secret, Tokens};

const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const CELL: &str = "cell.pem";
const MEMBERS: &str = "members";
pub(crate) const FIRST: &str = "holdall members 1";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine belongs to no cluster.
    #[error(
        "{0} has no certificate: this machine is no member of a cluster; make one (`holdall cluster init`) or join one"
    )]
    NoMember(PathBuf),
    /// It belongs to one already.
    #[error(
        "{0} has a certificate: this machine is a member of a cluster already; move that directory away to leave it"
    )]
    Member(PathBuf),
    /// It belonged to one, or almost.
    #[error(
        "{0} has no certificate, but the key of an authority or a list of members: join again with a token for this member, or, where the key is, let it certify itself; to begin anew move that directory away"
    )]
    Begun(PathBuf),
    /// The machine is none of the members it knows.
    #[error("{0} does not know {1} as a member")]
    Another(PathBuf, Cell),
    /// Something kept is missing or damaged.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A certificate or a key is of no use.
    #[error("{0}: {1}")]
    Certificate(PathBuf, String),
    /// The key of the authority is elsewhere.
    #[error("the key of the authority is not on this machine; say this at a member that has it")]
    NoKey,
    /// There is no such token.
    #[error("there is no token {0}; `holdall cluster token list` names them")]
    NoToken(String),
    /// These are no addresses.
    #[error("these cannot be the addresses of a member: at most 8, of the form host:port")]
    Addresses,
    /// No certificate can be made.
    #[error(transparent)]
    Authority(#[from] ca::Error),
    /// There are no random bits.
    #[error("the machine has no random bits: {0}")]
    Random(#[from] getrandom::Error),
}

/// The directory of a member.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    cell: Cell,
    pin: Pin,
}

/// The key for a certificate that is still to come.
pub(crate) struct Asked {
    key: KeyPair,
    pub(crate) request: Vec<u8>,
}

impl Asked {
    pub(crate) fn new() -> Result<Self, ca::Error> {
        let key = KeyPair::generate()?;
        Ok(Self { request: ca::request(&key)?, key })
    }

    /// The key and its certificate in one text, if they belong together.
    fn with(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        let same = ca::public_key(certificate)? == self.key.public_key_raw();
        same.then(|| self.key.serialize_pem() + &pem(certificate))
    }
}

impl Home {
    /// Makes a cluster: an authority, and the own cell as its first member.
    ///
    /// # Errors
    /// If the directory belongs to a member already, or cannot be written.
    pub fn init(dir: &Path, cell: &Cell, addresses: &[String]) -> Result<Self, Error> {
        check_addresses(addresses)?;
        if Self::is_in(dir) {
            return Err(Error::Member(dir.into()));
        }
        if dir.join(CA_KEY).exists() || dir.join(MEMBERS).exists() {
            return Err(Error::Begun(dir.into()));
        }
        let authority = Authority::make(card::now())?;
        let asked = Asked::new()?;
        let certificate = authority.issue(cell, &asked.request, card::now())?;
        let mut roster = Roster::new(cell.id, Vec::new());
        roster.add(cell.id, &cell.name, addresses, now());
        roster.say_member(addresses, true);
        let key = Some(authority.key_pem());
        Self::found(dir, cell, authority.certificate(), key, &asked, &certificate, &roster)
    }

    /// A member that has the key of the authority and has lost its own certificate makes itself another.
    ///
    /// # Errors
    /// If it has a certificate or no key, or is not a member by what its directory knows.
    pub fn certify(dir: &Path, cell: &Cell) -> Result<Self, Error> {
        if Self::is_in(dir) {
            return Err(Error::Member(dir.into()));
        }
        let mut home = Self { dir: dir.into(), cell: cell.clone(), pin: Pin([0; 32]) };
        home.pin = Pin::of(&home.authority_certificate()?);
        let roster = home.roster()?;
        if !roster.member(cell.id).is_some_and(|own| own.name == cell.name && !own.removed) {
            return Err(Error::Another(dir.into(), cell.clone()));
        }
        let asked = Asked::new()?;
        home.put(&asked, &home.issue(cell, &asked.request)?)?;
        Ok(home)
    }

    /// Writes the directory of a new member.
    pub(crate) fn found(
        dir: &Path,
        cell: &Cell,
        authority: &CertificateDer<'_>,
        authority_key: Option<String>,
        asked: &Asked,
        certificate: &CertificateDer<'_>,
        roster: &Roster,
    ) -> Result<Self, Error> {
        let home = Self { dir: dir.into(), cell: cell.clone(), pin: Pin::of(authority) };
        let own = asked.with(certificate);
        let own = own.ok_or_else(|| home.certificate("it is for another key"))?;
        store::make_dir(dir)?;
        store::replace(&dir.join(CA), pem(authority).as_bytes())?;
        match authority_key {
            Some(key) => store::replace(&dir.join(CA_KEY), key.as_bytes())?,
            None => home.drop_foreign_key()?,
        }
        home.save(roster)?;
        store::replace(&dir.join(CELL), own.as_bytes())?;
        Ok(home)
    }

    /// A key of another authority may lie here, if a cluster was begun and never finished.
    fn drop_foreign_key(&self) -> Result<(), Error> {
        if self.signs() && matches!(self.authority(), Err(Error::Authority(_))) {
            let path = self.dir.join(CA_KEY);
            std::fs::remove_file(&path).map_err(|error| store::Error::File(path, error))?;
        }
        Ok(())
    }

    /// Whether this is the directory of a member.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(CELL).exists()
    }

    /// The directory of a member.
    ///
    /// # Errors
    /// If it belongs to no member, or something in it is missing or damaged.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let own = store::read(&dir.join(CELL))?.ok_or_else(|| Error::NoMember(dir.into()))?;
        let unreadable = |why: String| Error::Certificate(dir.join(CELL), why);
        let certificate = CertificateDer::from_pem_slice(&own);
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        let card = Card::read(&certificate).map_err(|error| unreadable(error.to_string()))?;
        let mut home = Self { dir: dir.into(), cell: card.cell, pin: Pin([0; 32]) };
        home.pin = Pin::of(&home.authority_certificate()?);
        home.roster()?;
        Ok(home)
    }

    /// Who this member is.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The digest of the authority.
    pub fn pin(&self) -> Pin {
        self.pin
    }

    /// Whether the key of the authority is here.
    pub fn signs(&self) -> bool {
        self.dir.join(CA_KEY).exists()
    }

    /// What is known of the members.
    ///
    /// # Errors
    /// If it is missing or damaged: a member that does not know who was removed must not serve.
    pub fn roster(&self) -> Result<Roster, Error> {
        let path = self.dir.join(MEMBERS);
        let records: Option<Vec<Record>> = store::kept(&path, FIRST)?;
        let missing = || store::Error::Damaged(path, "it is missing");
        Ok(Roster::new(self.cell.id, records.ok_or_else(missing)?))
    }

    /// Whether its certificate is over, so that nobody talks to it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn is_over(&self) -> Result<bool, Error> {
        Ok(self.tls()?.card.is_over(card::now()))
    }

    /// Takes over what another member of the same cluster knows, which was listened to while this one was not.
    ///
    /// # Errors
    /// If it is of another cluster, or something is damaged or cannot be kept.
    pub fn learn_from(&self, other: &Self) -> Result<(), Error> {
        if self.pin != other.pin {
            return Err(self.certificate("it is of another cluster"));
        }
        let mut roster = self.roster()?;
        let damaged = |_| store::Error::Damaged(other.dir.join(MEMBERS), "it is beyond all bounds");
        roster.merge(other.roster()?.records()).map_err(damaged)?;
        Ok(self.save(&roster)?)
    }

    pub(crate) fn save(&self, roster: &Roster) -> Result<(), store::Error> {
        store::keep(&self.dir.join(MEMBERS), FIRST, &roster.records())
    }

    pub(crate) fn unsaved(&self, why: std::io::Error) -> store::Error {
        store::Error::File(self.dir.join(MEMBERS), why)
    }

    /// What TLS needs.
    pub(crate) fn tls(&self) -> Result<Tls, Error> {
        let own = store::read(&self.dir.join(CELL))?;
        let own = own.ok_or_else(|| Error::NoMember(self.dir.clone()))?;
        let certificate = CertificateDer::from_pem_slice(&own);
        let certificate = certificate.map_err(|error| self.certificate(&error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(&own);
        let key = key.map_err(|error| self.certificate(&error.to_string()))?;
        let tls = Tls::new(&self.authority_certificate()?, &certificate, &key);
        tls.map_err(|error| self.certificate(&error.to_string()))
    }

    /// Takes another certificate for the own cell, which the authority has signed and which lasts longer.
    pub(crate) fn renew(
        &self,
        asked: &Asked,
        certificate: &CertificateDer<'_>,
    ) -> Result<Tls, Error> {
        let card = Card::read(certificate).map_err(|error| self.certificate(&error.to_string()))?;
        if card.cell != self.cell {
            return Err(self.certificate("it is for another cell"));
        }
        let signed = tls::check_signed(certificate, &self.authority_certificate()?);
        signed.map_err(|error| self.certificate(&error.to_string()))?;
        if card.until <= self.tls()?.card.until {
            return Err(self.certificate("it does not last longer than the one that is here"));
        }
        self.put(asked, certificate)?;
        self.tls()
    }

    /// Writes the own certificate, if it is for this key.
    pub(crate) fn put(&self, asked: &Asked, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let own = asked.with(certificate);
        let own = own.ok_or_else(|| self.certificate("it is for another key"))?;
        Ok(store::replace(&self.dir.join(CELL), own.as_bytes())?)
    }

    /// A certificate for a member, if the key of the authority is here.
    pub(crate) fn issue(
        &self,
        cell: &Cell,
        request: &[u8],
    ) -> Result<CertificateDer<'static>, Error> {
        Ok(self.authority()?.issue(cell, request, card::now())?)
    }

    /// Makes a token with which somebody may join within that time.
    ///
    /// # Errors
    /// If the key of the authority is not here, or the token cannot be kept.
    pub fn add_token(&self, good: Duration, whose: For) -> Result<JoinToken, Error> {
        if !self.signs() {
            return Err(Error::NoKey);
        }
        let mut secret = Secret::default();
        getrandom::fill(&mut secret)?;
        Tokens::of(&self.dir).add(&secret, good, whose, now())?;
        Ok(JoinToken { pin: self.pin, maker: self.cell.id, secret })
    }

    /// The join tokens, in the order made.
    ///
    /// # Errors
    /// If they are damaged.
    pub fn tokens(&self) -> Result<Vec<Kept>, Error> {
        Ok(Tokens::of(&self.dir).list()?)
    }

    /// Revokes a join token by its label: it is good for nothing any more, at once.
    ///
    /// # Errors
    /// If there is none, or its end cannot be kept.
    pub fn revoke_token(&self, label: &str) -> Result<(), Error> {
        let revoked = Tokens::of(&self.dir).revoke(label)?;
        if revoked { Ok(()) } else { Err(Error::NoToken(label.chars().take(80).collect())) }
    }

    /// Whether a cell may join with this secret.
    pub(crate) fn look(
        &self,
        secret: &Secret,
        cell: CellId,
    ) -> Result<Result<Good, NoGood>, Error> {
        Ok(Tokens::of(&self.dir).look(secret, cell, now())?)
    }

    /// A certificate for whoever joins with this secret, who has used the token then.
    pub(crate) fn let_in(
        &self,
        cell: &Cell,
        request: &[u8],
        secret: &Secret,
    ) -> Result<Result<CertificateDer<'static>, NoGood>, Error> {
        let certificate = self.issue(cell, request)?;
        let redeemed = Tokens::of(&self.dir).redeem(secret, cell.id, now())?;
        Ok(redeemed.map(|_| certificate))
    }

    /// The key of the authority, to be put on another member. Whoever has it can make members.
    ///
    /// # Errors
    /// If it is not here.
    pub fn export_key(&self) -> Result<String, Error> {
        Ok(self.authority()?.key_pem())
    }

    /// Takes the key of the authority: this member signs, too, once its links are started anew.
    ///
    /// # Errors
    /// If it is another key, or cannot be written.
    pub fn import_key(&self, key: &str) -> Result<(), Error> {
        let authority = Authority::from_pem(self.authority_certificate()?, key)?;
        Ok(store::replace(&self.dir.join(CA_KEY), authority.key_pem().as_bytes())?)
    }

    pub(crate) fn authority(&self) -> Result<Authority, Error> {
        let path = self.dir.join(CA_KEY);
        let key = store::read(&path)?.ok_or(Error::NoKey)?;
        let key = String::from_utf8(key);
        let key = key.map_err(|_| Error::Certificate(path, "it is no key".into()))?;
        Ok(Authority::from_pem(self.authority_certificate()?, &key)?)
    }

    fn authority_certificate(&self) -> Result<CertificateDer<'static>, Error> {
        let path = self.dir.join(CA);
        let Some(content) = store::read(&path)? else {
            return Err(store::Error::Damaged(path, "it is missing").into());
        };
        let certificate = CertificateDer::from_pem_slice(&content);
        certificate.map_err(|error| Error::Certificate(path, error.to_string()))
    }

    fn certificate(&self, why: &str) -> Error {
        Error::Certificate(self.dir.join(CELL), why.into())
    }
}

/// Whether these can be the addresses of a member.
pub(crate) fn check_addresses(addresses: &[String]) -> Result<(), Error> {
    let with_port = |text: &String| {
        text.rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
    };
    let fine = member::are_addresses(addresses) && addresses.iter().all(with_port);
    if fine { Ok(()) } else { Err(Error::Addresses) }
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = data_encoding::BASE64.encode(certificate);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line) + "\n");
    let lines: String = lines.collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}

/// The time of the machine, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests;
