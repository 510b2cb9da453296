//! The smallest client that speaks HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

pub(crate) enum Client {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

pub(crate) trait Both: Read + Write + Send {}
impl<T: Read + Write + Send> Both for T {}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The name of the problem.
    pub(crate) fn problem(&self) -> String {
        assert!(self.head.contains("application/problem+json"), "{self:?}");
        let told = self.json();
        assert_eq!(told["status"], self.status, "{self:?}");
        let kind = told["type"].as_str().expect("a type");
        kind.strip_prefix("urn:holdall:problem:").expect("one of ours").to_owned()
    }
}

impl Client {
    pub(crate) fn connect(&self) -> Box<dyn Both> {
        let limit = Some(Duration::from_secs(60));
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path).expect("it listens");
                stream.set_read_timeout(limit).expect("a socket");
                Box::new(stream)
            }
            Self::Tcp(at) => {
                let stream = TcpStream::connect(at).expect("it listens");
                stream.set_read_timeout(limit).expect("a socket");
                Box::new(stream)
            }
        }
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "", &[])
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.call("DELETE", path, "", &[])
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", path, &body.to_string(), &[])
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", path, &body.to_string(), &[])
    }

    pub(crate) fn call(&self, method: &str, path: &str, body: &str, more: &[&str]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(text(method, path, body, more).as_bytes()).expect("sent");
        read(&mut *stream)
    }

    /// Calls, and leaves before there is an answer.
    pub(crate) fn begin(&self, method: &str, path: &str, body: &Value) -> Box<dyn Both> {
        let mut stream = self.connect();
        let text = text(method, path, &body.to_string(), &[]);
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    /// Listens to events.
    pub(crate) fn listen(&self, path: &str, more: &[&str]) -> Events {
        let mut stream = self.connect();
        stream.write_all(text("GET", path, "", more).as_bytes()).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status");
        assert!(line.contains(" 200 "), "{line}");
        while line.trim() != "" {
            line.clear();
            reader.read_line(&mut line).expect("a head");
        }
        Events(BufReader::new(Chunks { reader, left: 0 }))
    }
}

/// What is in the chunks of an answer without a length.
struct Chunks {
    reader: BufReader<Box<dyn Both>>,
    left: usize,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.left == 0 {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Ok(0);
            }
            // Before each length but the first the last chunk ends.
            if !line.trim().is_empty() {
                self.left = usize::from_str_radix(line.trim(), 16).expect("a length");
                if self.left == 0 {
                    return Ok(0);
                }
            }
        }
        let most = buffer.len().min(self.left);
        let read = self.reader.read(&mut buffer[..most])?;
        self.left -= read;
        Ok(read)
    }
}

/// The head and body of a call.
pub(crate) fn text(method: &str, path: &str, body: &str, more: &[&str]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if !more.iter().any(|line| line.to_lowercase().starts_with("host:")) {
        head += "host: localhost\r\n";
    }
    if !body.is_empty() {
        head += &format!("content-length: {}\r\n", body.len());
        if !more.iter().any(|line| line.to_lowercase().starts_with("content-type:")) {
            head += "content-type: application/json\r\n";
        }
    }
    for line in more {
        head += &format!("{line}\r\n");
    }
    format!("{head}\r\n{body}")
}

pub(crate) fn read(stream: &mut dyn Read) -> Answer {
    let mut all = Vec::new();
    // Whoever is turned away early may find the connection reset, and has the answer.
    let _ = stream.read_to_end(&mut all);
    let all = String::from_utf8(all).expect("text");
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {all}"));
    let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

pub(crate) struct Events(BufReader<Chunks>);

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) data: Value,
}

impl Events {
    /// The next event; none when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let (mut kind, mut id) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end();
            if let Some(text) = line.strip_prefix("event: ") {
                kind = text.to_owned();
            } else if let Some(text) = line.strip_prefix("id: ") {
                id = text.to_owned();
            } else if let Some(text) = line.strip_prefix("data: ") {
                return Some(Event { kind, id, data: serde_json::from_str(text).expect("JSON") });
            }
        }
    }

    /// The next event of a kind.
    pub(crate) fn next_of(&mut self, kind: &str) -> Event {
        loop {
            let event = self.next().expect("the stream goes on");
            if event.kind == kind {
                return event;
            }
        }
    }
}
