//! What a configuration says about HTTP over TCP.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;

use crate::plain;

/// The part `[http]` of a configuration. The Unix socket needs none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where to listen; nowhere if nothing is said.
    pub listen: Option<SocketAddr>,
    /// The names by which browsers may reach it, besides `localhost` and addresses.
    pub names: Vec<String>,
    /// The file of the certificate and those above it (PEM).
    pub certificate: Option<PathBuf>,
    /// The file of its private key (PEM).
    pub key: Option<PathBuf>,
    /// Whether tokens may go over the network in the clear: there is a proxy that speaks TLS, or the
    /// network is one that nobody else is in.
    pub plain: bool,
}

/// An address of TCP where it listens.
#[derive(Debug)]
pub struct Tcp {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

impl Tcp {
    /// The address.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn at(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Half of what TLS needs.
    #[error("http.certificate and http.key belong together: name both, or neither")]
    Half,
    /// A network, and no TLS.
    #[error(
        "http.listen is {0}, which others can reach, and tokens would go there in the clear: name \
         http.certificate and http.key, listen at 127.0.0.1, or say http.plain = true"
    )]
    InTheClear(SocketAddr),
    /// A file that cannot be read, or has not in it what it should.
    #[error("{file}: {why}", file = .0.display(), why = .1)]
    File(PathBuf, rustls::pki_types::pem::Error),
    /// A certificate without a certificate.
    #[error("{file} has no certificate in it (PEM)", file = .0.display())]
    Empty(PathBuf),
    /// The certificate and the key do not belong together, or are of no use.
    #[error("http.certificate and http.key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// The address cannot be had.
    #[error("cannot listen at {0}: {1}")]
    Listen(SocketAddr, io::Error),
}

impl Config {
    /// What TLS needs, if it is wanted; also finds out whether the rest makes sense.
    ///
    /// # Errors
    /// If it does not.
    pub fn tls(&self) -> Result<Option<Arc<ServerConfig>>, Unusable> {
        let (certificate, key) = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (None, None) => {
                let open = self.listen.filter(|at| !at.ip().is_loopback() && !self.plain);
                return open.map_or(Ok(None), |at| Err(Unusable::InTheClear(at)));
            }
            _ => return Err(Unusable::Half),
        };
        let chain = read(certificate, |pem| {
            CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()
        })?;
        if chain.is_empty() {
            return Err(Unusable::Empty(certificate.clone()));
        }
        let key = read(key, PrivateKeyDer::from_pem_slice)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Some(Arc::new(tls)))
    }

    /// Takes the address, if one is named.
    ///
    /// # Errors
    /// If somebody else has it, or what TLS needs is not there.
    pub fn open(&self) -> Result<Option<Tcp>, Unusable> {
        let tls = self.tls()?;
        let bind = |at| {
            let listener = TcpListener::bind(at)?;
            listener.set_nonblocking(true)?;
            Ok(Tcp { listener, tls })
        };
        self.listen.map(|at| bind(at).map_err(|error| Unusable::Listen(at, error))).transpose()
    }
}

fn read<T>(
    path: &Path,
    from: impl FnOnce(&[u8]) -> Result<T, rustls::pki_types::pem::Error>,
) -> Result<T, Unusable> {
    let read = plain::read_named(path).map_err(rustls::pki_types::pem::Error::Io);
    read.and_then(|pem| from(&pem)).map_err(|why| Unusable::File(path.to_owned(), why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(listen: &str) -> Config {
        Config { listen: Some(listen.parse().expect("an address")), ..Config::default() }
    }

    #[test]
    fn tokens_do_not_go_over_a_network_in_the_clear_by_accident() {
        assert!(matches!(config("127.0.0.1:0").tls(), Ok(None)));
        assert!(matches!(config("[::1]:0").tls(), Ok(None)));
        assert!(matches!(config("0.0.0.0:0").tls(), Err(Unusable::InTheClear(_))));
        assert!(matches!(Config { plain: true, ..config("0.0.0.0:0") }.tls(), Ok(None)));
    }

    #[test]
    fn half_a_certificate_is_none() {
        let half = Config { key: Some("key.pem".into()), ..config("127.0.0.1:0") };
        assert!(matches!(half.tls(), Err(Unusable::Half)));
        let missing = Config { certificate: Some("/no/such.pem".into()), ..half };
        let told = missing.tls().expect_err("there is no such file").to_string();
        assert!(told.starts_with("/no/such.pem: "), "{told}");
    }

    #[test]
    fn nobody_waits_for_a_certificate() {
        let dir = tempfile::tempdir().expect("a directory");
        let (fifo, link) = (dir.path().join("fifo"), dir.path().join("link"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).expect("a FIFO");
        std::fs::write(dir.path().join("pem"), "nothing").expect("written");
        std::os::unix::fs::symlink("pem", &link).expect("a link");
        let told = |certificate: &Path| {
            let (certificate, key) = (Some(certificate.into()), Some("key.pem".into()));
            let config = Config { certificate, key, ..config("127.0.0.1:0") };
            config.tls().expect_err("of no use").to_string()
        };
        assert!(told(&fifo).contains("no plain file"), "{}", told(&fifo));
        assert!(told(Path::new("/dev/zero")).contains("no plain file"));
        assert!(told(&link).contains("no certificate in it"), "a link is followed");
    }
}
