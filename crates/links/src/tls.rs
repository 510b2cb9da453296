//! TLS between members, and to those who are none yet.
//!
//! There is one authority and no other root: whoever connects believes a server whose certificate was signed by
//! the authority with the right [`Pin`], which the server sends along. A member shows its own certificate; those
//! who join and clients without an agent have none, and show a secret afterwards. TLS 1.3 alone, and no session is
//! resumed: who somebody is, and whether he still is, is decided on every connection.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    ServerConfig, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::ca::Pin;
use crate::card::Card;
use crate::cell::CellId;

/// What is spoken inside; scanners and browsers do not offer it and are turned away by TLS.
const SPOKEN: &[u8] = b"holdall";
/// TLS wants a name of the server, which means nothing here: members are known by their certificates.
const ANYBODY: &str = "cell.holdall.invalid";

/// One connection, whoever began it.
pub(crate) type Stream = TlsStream<TcpStream>;

/// What a member needs for TLS.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
    /// What the own certificate says.
    pub(crate) card: Card,
}

impl Tls {
    /// For a member with this certificate and key.
    pub(crate) fn new(
        authority: &CertificateDer<'static>,
        certificate: &CertificateDer<'static>,
        key: &PrivateKeyDer<'static>,
    ) -> Result<Self, rustls::Error> {
        let unreadable = |_| rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
        let card = Card::read(certificate).map_err(unreadable)?;
        let chain = vec![certificate.clone(), authority.clone()];
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(roots.into(), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain.clone(), key.clone_key())?;
        server.alpn_protocols = vec![SPOKEN.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let client =
            believing(Pin::of(authority))?.with_client_auth_cert(chain, key.clone_key())?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(server)),
            connector: connector(client),
            card,
        })
    }

    /// The other side of a connection that came in, and what its certificate says if it has one.
    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<(Stream, Option<Card>)> {
        let stream = TlsStream::from(self.acceptor.accept(stream).await?);
        // TLS turns away who offers something else; who offers nothing is left to us.
        if stream.get_ref().1.alpn_protocol() != Some(SPOKEN) {
            return Err(io::Error::other("it does not say that it speaks holdall"));
        }
        let card = match stream.get_ref().1.peer_certificates() {
            Some([first, ..]) => Some(Card::read(first).map_err(io::Error::other)?),
            _ => None,
        };
        Ok((stream, card))
    }

    /// Connects to a member as a member.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<(Stream, Card)> {
        connect(&self.connector, stream).await
    }
}

/// Connects to this member of the cluster with this pin, as nobody. Whoever has no part in the cluster yet cannot know
/// who was removed from it, so no other member is believed.
pub(crate) async fn connect_as_nobody(
    pin: Pin,
    to: CellId,
    stream: TcpStream,
) -> io::Result<Stream> {
    let config = believing(pin).map_err(io::Error::other)?.with_no_client_auth();
    let (stream, Card { cell, .. }) = connect(&connector(config), stream).await?;
    if cell.id != to {
        let why =
            format!("{cell} is there, and the token is of another member ({to}); say it there");
        return Err(io::Error::other(why));
    }
    Ok(stream)
}

/// The certificate of the authority, as the other side has sent it and as it was believed.
pub(crate) fn authority_of(stream: &Stream, pin: Pin) -> Option<CertificateDer<'static>> {
    let chain = stream.get_ref().1.peer_certificates()?;
    chain.iter().find(|one| Pin::of(one) == pin).map(|found| found.clone().into_owned())
}

async fn connect(connector: &TlsConnector, stream: TcpStream) -> io::Result<(Stream, Card)> {
    let name = ServerName::try_from(ANYBODY).map_err(io::Error::other)?;
    let stream = TlsStream::from(connector.connect(name, stream).await?);
    let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate =
        certificate.ok_or_else(|| io::Error::other("a server without certificate"))?;
    let card = Card::read(certificate).map_err(io::Error::other)?;
    Ok((stream, card))
}

fn connector(mut config: ClientConfig) -> TlsConnector {
    config.alpn_protocols = vec![SPOKEN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    TlsConnector::from(Arc::new(config))
}

pub(crate) fn believing(
    pin: Pin,
) -> Result<rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert>, rustls::Error> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { pin, provider: provider() })))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Whether the authority has signed this, and it is good now.
pub(crate) fn check_signed(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
) -> Result<(), rustls::Error> {
    check_signed_at(certificate, authority, UnixTime::now())
}

fn check_signed_at(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.clone().into_owned())?;
    let parsed = ParsedCertificate::try_from(certificate)?;
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms)
}

/// Believes whoever was certified by the authority with this digest.
#[derive(Debug)]
struct Pinned {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let authority = intermediates.iter().find(|one| Pin::of(one) == self.pin);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        check_signed_at(end_entity, authority, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What went wrong on a connection, for people.
pub(crate) fn told(error: &io::Error) -> String {
    const OTHER: &str =
        "it belongs to another cluster: its certificate was signed by another authority";
    const CLOCKS: &str = "compare the clocks of both machines";
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => OTHER.into(),
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("its certificate has expired; {CLOCKS}, or let it join anew")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("its certificate is not good yet; {CLOCKS}")
            }
            other => format!("its certificate is refused: {other}"),
        },
        Some(rustls::Error::AlertReceived(alert)) => match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "it refuses this cell's certificate, which was signed by another authority".into()
            }
            AlertDescription::CertificateExpired => {
                format!(
                    "it refuses this cell's certificate, which is not good now; {CLOCKS}, or join anew"
                )
            }
            other => format!("it ended the handshake: {other:?}"),
        },
        Some(rustls::Error::InvalidMessage(_)) => "whoever is there does not speak TLS".into(),
        Some(other) => other.to_string(),
        None if is_end(error.kind()) => "it closed the connection".into(),
        None => error.to_string(),
    }
}

fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}
