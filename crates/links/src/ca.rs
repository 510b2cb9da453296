//! The private certificate authority of a cluster.
//!
//! Its key signs the certificates of the members and nothing else, and lives with the member that made the
//! cluster ([`crate::home`]). The certificate is told to everybody and known by its digest, the [`Pin`], which is
//! part of every token. Keys of members are made where they are used and never leave; what is sent is a request
//! signed with the key, of which only the public key is taken: who somebody is, the signer decides.
//!
//! Certificates begin a day early, so that clocks may differ by a day, and are good for [`LIFE`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use data_encoding::BASE64URL_NOPAD;
use hmac_sha256::Hash;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;

use crate::card;
use crate::cell::Cell;

/// How long a member's certificate is good.
pub const LIFE: Duration = Duration::from_secs(30 * DAY);
/// How long the authority's own is: longer than anybody keeps a cluster.
const AUTHORITY_LIFE: Duration = Duration::from_secs(30 * 365 * DAY);
/// By how much clocks may differ.
const SKEW: Duration = Duration::from_secs(DAY);
const DAY: u64 = 24 * 60 * 60;
/// The longest request for a certificate that is read.
pub(crate) const REQUEST_MAX: usize = 4096;

/// The digest of an authority's certificate: whoever knows it knows whom to believe.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin(pub [u8; 32]);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is none.
    #[error("the request for a certificate cannot be read: {0}")]
    Request(rcgen::Error),
    /// The key and the certificate do not belong together.
    #[error("the key is not that of the cluster's certificate")]
    OtherKey,
    /// Something else is wrong with a key or a certificate.
    #[error("a certificate cannot be made: {0}")]
    Making(#[from] rcgen::Error),
}

impl Pin {
    /// The digest of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Hash::hash(certificate))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Pin {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(drop)?;
        bytes.try_into().map(Self).map_err(drop)
    }
}

/// Whoever has the key of the authority.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority.
    pub(crate) fn make(now: i64) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = lasting(now, AUTHORITY_LIFE);
        params.distinguished_name.push(DnType::CommonName, "holdall cluster");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key)?.der().clone();
        Ok(Self { certificate, issuer: Issuer::new(params, key) })
    }

    /// The authority with this certificate and this key.
    pub(crate) fn from_pem(certificate: CertificateDer<'static>, key: &str) -> Result<Self, Error> {
        let key = KeyPair::from_pem(key)?;
        let same = public_key(&certificate).is_some_and(|its| its == key.public_key_raw());
        if !same {
            return Err(Error::OtherKey);
        }
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        Ok(Self { certificate, issuer })
    }

    pub(crate) fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate that says: whoever has the key of this request is that cell.
    pub(crate) fn issue(
        &self,
        cell: &Cell,
        request: &[u8],
        now: i64,
    ) -> Result<CertificateDer<'static>, Error> {
        let request = CertificateSigningRequestParams::from_der(&request.into());
        let request = request.map_err(Error::Request)?;
        let mut params = lasting(now, LIFE);
        params.distinguished_name.push(DnType::CommonName, cell.name.as_str());
        params.subject_alt_names = vec![SanType::URI(card::uri(cell).try_into()?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(&request.public_key, &self.issuer)?.der().clone())
    }
}

/// A request for a certificate, signed with its key.
pub(crate) fn request(key: &KeyPair) -> Result<Vec<u8>, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    Ok(params.serialize_request(key)?.der().to_vec())
}

/// The public key in a certificate.
pub(crate) fn public_key(certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(parsed.public_key().subject_public_key.data.to_vec())
}

fn lasting(now: i64, life: Duration) -> CertificateParams {
    let now = OffsetDateTime::from_unix_timestamp(now).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let mut params = CertificateParams::default();
    params.not_before = now.checked_sub(SKEW.try_into().unwrap_or_default()).unwrap_or(now);
    params.not_after = now.checked_add(life.try_into().unwrap_or_default()).unwrap_or(now);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::card::Card;
    use crate::cell::CellId;

    const NOW: i64 = 1_800_000_000;

    fn cell() -> Cell {
        Cell { id: CellId(7), name: "lab1".parse().expect("a name") }
    }

    #[test]
    fn a_certificate_says_who_and_how_long() {
        let authority = Authority::make(NOW).expect("made");
        let key = KeyPair::generate().expect("a key");
        let issued = authority.issue(&cell(), &request(&key).expect("a request"), NOW);
        let issued = issued.expect("issued");
        let card = Card::read(&issued).expect("readable");
        assert_eq!(card.cell, cell());
        assert_eq!((card.from, card.until), (NOW - 86_400, NOW + 30 * 86_400));
        assert_eq!(public_key(&issued).expect("a key"), key.public_key_raw());
    }

    #[test]
    fn an_authority_comes_back_from_its_files_and_no_other() {
        let one = Authority::make(NOW).expect("made");
        let other = Authority::make(NOW).expect("made");
        let certificate = one.certificate().clone();
        assert!(Authority::from_pem(certificate.clone(), &one.key_pem()).is_ok());
        let mixed = Authority::from_pem(certificate, &other.key_pem());
        assert!(matches!(mixed, Err(Error::OtherKey)));
        assert_ne!(Pin::of(one.certificate()), Pin::of(other.certificate()));
    }

    #[test]
    fn a_request_with_a_broken_signature_is_refused() {
        let authority = Authority::make(NOW).expect("made");
        let key = KeyPair::generate().expect("a key");
        let mut asked = request(&key).expect("a request");
        *asked.last_mut().expect("it is long") ^= 1;
        assert!(matches!(authority.issue(&cell(), &asked, NOW), Err(Error::Request(_))));
    }

    #[test]
    fn a_pin_comes_back_from_its_text() {
        let pin = Pin([9; 32]);
        assert_eq!(pin.to_string().parse(), Ok(pin));
        assert_eq!("CQkJ".parse::<Pin>(), Err(()));
    }

    proptest! {
        #[test]
        fn any_request_is_read_without_panic(bytes: Vec<u8>) {
            let authority = Authority::make(NOW).expect("made");
            prop_assert!(authority.issue(&cell(), &bytes, NOW).is_err());
        }
    }
}
