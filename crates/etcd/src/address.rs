//! Where an etcd is, as people write it.
//!
//! `etcd://HOST:PORT[,HOST:PORT...]/PREFIX`, or `etcds://` for TLS, with options after `?`:
//! `ca=FILE`, `cert=FILE`, `key=FILE`, `server=NAME`, `user=NAME`, `password-file=FILE`. Secrets are
//! in files: an address is seen by whoever sees a command line.

use std::fmt;
use std::path::PathBuf;

/// The port that etcd has unless another is said.
const PORT: &str = "2379";

/// Where an etcd is, and how to be let in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Its members, as `host:port`.
    pub members: Vec<String>,
    /// What the keys begin with, after `holdall/`; without slashes at the ends.
    pub prefix: String,
    /// Whether to speak TLS.
    pub tls: Option<Tls>,
    /// Who to be, and the file with their password.
    pub user: Option<(String, PathBuf)>,
}

/// The files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Who has signed the certificates of the members.
    pub ca: PathBuf,
    /// The own certificate and its key, if etcd asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name in the certificates of the members, if it is not what they are reached by.
    pub server: Option<String>,
}

/// Why an address cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is no address of an etcd: {why}; write etcd://HOST:PORT,HOST:PORT/NAME")]
pub struct Unreadable {
    address: String,
    why: String,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// If it is none.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let wrong = |why: &str| Unreadable { address: text.into(), why: why.into() };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let mut address = Self {
            members: members.split(',').map(with_port).collect(),
            prefix: prefix.trim_matches('/').into(),
            ..Self::default()
        };
        if members.split(',').any(|member| member.is_empty() || member.contains('@')) {
            return Err(wrong("each member is HOST or HOST:PORT, and users are options"));
        }
        let mut options = Query::read(query).map_err(|why| wrong(&why))?;
        match scheme {
            "etcd" => {}
            "etcds" => address.tls = Some(options.tls().map_err(|why| wrong(&why))?),
            _ => return Err(wrong("the scheme is neither etcd nor etcds (which is TLS)")),
        }
        address.user = match (options.take("user"), options.take("password-file")) {
            (Some(user), Some(file)) => Some((user, file.into())),
            (None, None) => None,
            _ => return Err(wrong("`user` and `password-file` go together")),
        };
        match options.0.first() {
            Some((name, _)) => Err(wrong(&format!("there is no option `{name}` here"))),
            None => Ok(address),
        }
    }
}

fn with_port(member: &str) -> String {
    let has_port = member.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { member.into() } else { format!("{member}:{PORT}") }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", self.members.join(","), self.prefix)
    }
}

struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str) -> Result<Self, String> {
        let options = text.split('&').filter(|option| !option.is_empty());
        let pair = |option: &str| match option.split_once('=') {
            Some((name, value)) if !value.is_empty() => Ok((name.to_owned(), value.to_owned())),
            _ => Err(format!("the option `{option}` has no value")),
        };
        options.map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.remove(at).1)
    }

    fn tls(&mut self) -> Result<Tls, String> {
        let ca = self.take("ca").ok_or("TLS needs `ca`, the file with who signs its members")?;
        let own = match (self.take("cert"), self.take("key")) {
            (Some(cert), Some(key)) => Some((cert.into(), key.into())),
            (None, None) => None,
            _ => return Err("`cert` and `key` go together".into()),
        };
        Ok(Tls { ca: ca.into(), own, server: self.take("server") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let plain = Address::parse("etcd://a:1,b,[::1]:3/licences").expect("it is one");
        assert_eq!(plain.members, ["a:1", "b:2379", "[::1]:3"]);
        assert_eq!(
            (&*plain.prefix, plain.to_string()),
            ("licences", "etcd://a:1,b:2379,[::1]:3/licences".into())
        );
        let text = "etcds://a/x?ca=/ca&cert=/c&key=/k&server=s&user=u&password-file=/p";
        let full = Address::parse(text).expect("it is one");
        let own = Some(("/c".into(), "/k".into()));
        assert_eq!(full.tls, Some(Tls { ca: "/ca".into(), own, server: Some("s".into()) }));
        assert_eq!(full.user, Some(("u".into(), "/p".into())));
        assert_eq!(full.to_string(), "etcds://a:2379/x", "without what is nobody's business");
    }

    #[test]
    fn what_is_none_is_told_why() {
        for (text, why) in [
            ("a:1", "no scheme"),
            ("http://a", "neither etcd nor etcds"),
            ("etcd:///x", "each member"),
            ("etcd://me:secret@a/x", "users are options"),
            ("etcds://a/x", "needs `ca`"),
            ("etcds://a/x?ca=/ca&cert=/c", "`cert` and `key`"),
            ("etcd://a/x?user=u", "`user` and `password-file`"),
            ("etcd://a/x?ca=/ca", "no option `ca`"),
            ("etcd://a/x?user", "has no value"),
        ] {
            let told = Address::parse(text).expect_err(text).to_string();
            assert!(told.contains(why), "{told}");
        }
    }
}
