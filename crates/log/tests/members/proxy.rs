//! Something between a client and a server that can be cut, or swallow what is said.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// What becomes of what is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// It is passed on.
    Open,
    /// Connections break, and none are made.
    Cut,
    /// Nothing arrives, and nobody is told so.
    Still,
}

/// A cut of many connections; clones are the same.
#[derive(Clone)]
pub(crate) struct Cut(Arc<AtomicU8>);

impl Cut {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicU8::new(Way::Open as u8)))
    }

    pub(crate) fn set(&self, way: Way) {
        self.0.store(way as u8, Ordering::SeqCst);
    }

    fn is(&self, way: Way) -> bool {
        self.0.load(Ordering::SeqCst) == way as u8
    }

    /// Listens somewhere for what goes to a port of this machine. Lasts as long as the process.
    pub(crate) fn before(&self, to: u16) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let cut = self.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if cut.is(Way::Cut) {
                    continue;
                }
                let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, to)) else { continue };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone())
                else {
                    continue;
                };
                cut.clone().pass_on(client, server);
                cut.clone().pass_on(server_too, client_too);
            }
        });
        port
    }

    fn pass_on(self, mut from: TcpStream, mut to: TcpStream) {
        std::thread::spawn(move || {
            let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
            let _ = from.set_nodelay(true);
            let mut bytes = vec![0; 64 << 10];
            while !self.is(Way::Cut) {
                if self.is(Way::Still) {
                    std::thread::sleep(Duration::from_millis(20));
                    continue;
                }
                match from.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(count) if to.write_all(&bytes[..count]).is_ok() => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    _ => break,
                }
            }
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}
