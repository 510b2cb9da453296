//! Links to the other processes: TCP on loopback, one connection for each direction.
//!
//! A connection carries frames one way only, so when its sender dies the kernel delivers all that was
//! written before it reports the end: whoever reads the end has read the last message.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

use holdall_core::{Addr, NodeId, UserId};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use crate::channel::Channel;
use crate::poll::{Poll, Token};
use crate::words::{Entry, Frame, HELLO_MOST, Hello, Place, Secret};

/// How many connections may wait to be accepted.
const BACKLOG: i32 = 4096;
/// How many connections there may be that have not said who they are, besides those of all processes.
pub(crate) const STRANGERS: usize = 64;

/// What arrived.
#[derive(Debug)]
pub(super) enum Arrival {
    Frame(Frame),
    /// The sender is gone, and with it these users.
    End(Vec<UserId>),
    /// An honest sender would not have sent this.
    Nonsense(Place, String),
}

#[derive(Debug)]
struct Incoming {
    channel: Channel<TcpStream>,
    /// Who sends, once it said so.
    from: Option<Place>,
    /// Its users that are not over.
    users: BTreeSet<UserId>,
}

#[derive(Debug)]
struct Outgoing {
    channel: Channel<TcpStream>,
    token: Token,
    blocked: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Links {
    me: Place,
    secret: Secret,
    listener: TcpListener,
    /// Where everybody listens.
    ports: HashMap<Place, u16>,
    /// The node of each manager.
    nodes: Vec<NodeId>,
    /// The users of this process that are not over.
    users: BTreeSet<UserId>,
    incoming: HashMap<Token, Incoming>,
    outgoing: HashMap<Place, Outgoing>,
    by_token: HashMap<Token, Place>,
    /// Those with something to write.
    unwritten: BTreeSet<Place>,
    /// Those whose connections have ended.
    cut: Vec<Entry>,
    next_token: Token,
}

impl Links {
    /// Listens, under the token `listener`; further tokens follow.
    pub(super) fn new(
        me: Place,
        secret: Secret,
        nodes: Vec<NodeId>,
        poll: &Poll,
        listener: Token,
    ) -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        listen(&socket, BACKLOG)?;
        let bound = TcpListener::from(socket);
        bound.set_nonblocking(true)?;
        poll.add(&bound, listener)?;
        Ok(Self {
            me,
            secret,
            listener: bound,
            ports: HashMap::new(),
            nodes,
            users: BTreeSet::new(),
            incoming: HashMap::new(),
            outgoing: HashMap::new(),
            by_token: HashMap::new(),
            unwritten: BTreeSet::new(),
            cut: Vec::new(),
            next_token: listener + 1,
        })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Somebody listens there from now on. What was on its way to its predecessor is dropped.
    pub(super) fn note(&mut self, entry: Entry) {
        self.ports.insert(entry.place, entry.port);
        if let Some(old) = self.outgoing.remove(&entry.place) {
            self.by_token.remove(&old.token);
            self.unwritten.remove(&entry.place);
        }
    }

    /// The process in which a role is, if there is such a role.
    pub(super) fn place_of(&self, role: Addr) -> Option<Place> {
        match role {
            Addr::Manager(id) => self.nodes.get(id.index()).copied().map(Place::Node),
            Addr::User(id) => Some(Place::Client(id.lane().number)),
        }
    }

    /// Connects to every node, so that each of them sees the end of this process.
    pub(super) fn meet_nodes(&mut self, poll: &Poll) -> io::Result<()> {
        for node in self.nodes.iter().copied().collect::<BTreeSet<_>>() {
            self.connect(Place::Node(node), poll)?;
        }
        self.flush(poll)
    }

    /// A user of this process begins. Whoever is connected hears of it before any message of it.
    pub(super) fn born(&mut self, user: UserId) -> io::Result<()> {
        self.users.insert(user);
        self.tell_all(&Frame::Born(user))
    }

    /// A user of this process that left is idle.
    pub(super) fn over(&mut self, user: UserId) -> io::Result<()> {
        self.users.remove(&user);
        self.tell_all(&Frame::Over(user))
    }

    fn tell_all(&mut self, frame: &Frame) -> io::Result<()> {
        for (to, link) in &mut self.outgoing {
            link.channel.push(frame).map_err(io::Error::other)?;
            self.unwritten.insert(*to);
        }
        Ok(())
    }

    /// Sends a frame to a process; if that is gone, to nobody.
    pub(super) fn send(&mut self, to: Place, frame: &Frame, poll: &Poll) -> io::Result<()> {
        if !self.outgoing.contains_key(&to) && !self.connect(to, poll)? {
            return Ok(());
        }
        if let Some(link) = self.outgoing.get_mut(&to) {
            link.channel.push(frame).map_err(io::Error::other)?;
            self.unwritten.insert(to);
        }
        Ok(())
    }

    /// Connects; false if nobody listens there any more.
    fn connect(&mut self, to: Place, poll: &Poll) -> io::Result<bool> {
        let Some(port) = self.ports.get(&to) else { return Ok(false) };
        let stream = match TcpStream::connect((Ipv4Addr::LOCALHOST, *port)) {
            Ok(stream) => stream,
            Err(error) if is_nobody(error.kind()) => return Ok(false),
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let token = self.new_token();
        poll.add(&stream, token)?;
        let mut channel = Channel::new(stream);
        let hello = Hello { secret: self.secret, from: self.me };
        channel.push(&hello).map_err(io::Error::other)?;
        for user in &self.users {
            channel.push(&Frame::Born(*user)).map_err(io::Error::other)?;
        }
        self.outgoing.insert(to, Outgoing { channel, token, blocked: false });
        self.by_token.insert(token, to);
        self.unwritten.insert(to);
        Ok(true)
    }

    fn new_token(&mut self) -> Token {
        self.next_token += 1;
        self.next_token
    }

    /// Writes what there is room for.
    pub(super) fn flush(&mut self, poll: &Poll) -> io::Result<()> {
        for to in std::mem::take(&mut self.unwritten) {
            self.flush_one(to, poll)?;
        }
        Ok(())
    }

    fn flush_one(&mut self, to: Place, poll: &Poll) -> io::Result<()> {
        let Some(link) = self.outgoing.get_mut(&to) else { return Ok(()) };
        match link.channel.flush() {
            Ok(done) if done == link.blocked => {
                link.blocked = !done;
                poll.want(link.channel.stream(), link.token, link.blocked)
            }
            Ok(_) => Ok(()),
            Err(_) => {
                self.lose(to);
                Ok(())
            }
        }
    }

    /// The process at the other end is gone.
    fn lose(&mut self, to: Place) {
        let port = self.ports.remove(&to);
        self.cut.extend(port.map(|port| Entry { place: to, port }));
        if let Some(link) = self.outgoing.remove(&to) {
            self.by_token.remove(&link.token);
        }
    }

    /// Those to whom nothing can be sent any more, since the last time.
    pub(super) fn take_cut(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.cut)
    }

    /// Something can be done about a socket.
    pub(super) fn ready(&mut self, token: Token, poll: &Poll) -> io::Result<Vec<Arrival>> {
        if let Some(to) = self.by_token.get(&token).copied() {
            // Nobody answers on such a link: there is room again, or the other end is gone.
            let link = self.outgoing.get_mut(&to);
            if link.is_some_and(|link| link.channel.fill().unwrap_or(false)) {
                self.flush_one(to, poll)?;
            } else {
                self.lose(to);
            }
            return Ok(Vec::new());
        }
        if self.incoming.contains_key(&token) {
            return Ok(self.read(token));
        }
        Ok(Vec::new())
    }

    /// Takes on whoever connects.
    pub(super) fn accept(&mut self, poll: &Poll) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            self.drop_a_stranger();
            stream.set_nonblocking(true)?;
            let token = self.new_token();
            poll.add(&stream, token)?;
            let mut channel = Channel::new(stream);
            channel.limit(Some(HELLO_MOST));
            self.incoming.insert(token, Incoming { channel, from: None, users: BTreeSet::new() });
        }
    }

    /// Whoever connects and says nothing is dropped when there are too many of its kind, oldest first. All
    /// other processes may have connected without having been heard yet.
    fn drop_a_stranger(&mut self) {
        let strangers = self.incoming.iter().filter(|(_, link)| link.from.is_none());
        if strangers.clone().count() >= STRANGERS + self.ports.len() {
            let silent =
                strangers.filter(|(_, link)| link.channel.stream().peek(&mut [0]).is_err());
            let oldest = silent.map(|(token, _)| *token).min();
            oldest.map(|token| self.incoming.remove(&token));
        }
    }

    fn read(&mut self, token: Token) -> Vec<Arrival> {
        let Some(link) = self.incoming.get_mut(&token) else { return Vec::new() };
        let open = link.channel.fill().unwrap_or(false);
        if link.from.is_none() && !link.greeted(&self.secret) {
            self.incoming.remove(&token); // A stranger.
            return Vec::new();
        }
        let mut arrivals = Vec::new();
        while let Some(from) = link.from {
            match link.channel.take::<Frame>() {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    if let Some(arrival) = link.take(from, frame, &self.nodes) {
                        arrivals.push(arrival);
                    }
                }
                Err(bad) => {
                    arrivals.push(Arrival::Nonsense(from, bad.to_string()));
                    break;
                }
            }
        }
        if !open && let Some(link) = self.incoming.remove(&token) {
            arrivals.push(Arrival::End(link.users.into_iter().collect()));
        }
        arrivals
    }
}

/// Whether nobody listens any more: whoever ends while somebody connects resets the connection.
fn is_nobody(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

impl Incoming {
    /// False if it is certain that whoever sends does not belong here.
    fn greeted(&mut self, secret: &Secret) -> bool {
        match self.channel.take::<Hello>() {
            Ok(None) => true,
            Ok(Some(hello)) if hello.secret == *secret => {
                self.from = Some(hello.from);
                self.channel.limit(None);
                true
            }
            _ => false,
        }
    }

    /// Senders are what they say they are, or it is nonsense.
    fn take(&mut self, place: Place, frame: Frame, nodes: &[NodeId]) -> Option<Arrival> {
        let honest = match &frame {
            Frame::Born(user) | Frame::Over(user) => Place::Client(user.lane().number) == place,
            Frame::Message { from: Addr::User(user), .. } => self.users.contains(user),
            Frame::Message { from: Addr::Manager(id), .. } => {
                nodes.get(id.index()).copied().map(Place::Node) == Some(place)
            }
        };
        if !honest {
            return Some(Arrival::Nonsense(place, format!("{frame:?} is not its to send")));
        }
        match frame {
            Frame::Born(user) => drop(self.users.insert(user)),
            Frame::Over(user) => drop(self.users.remove(&user)),
            Frame::Message { .. } => return Some(Arrival::Frame(frame)),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use holdall_core::ManagerId;

    use super::*;
    use crate::clock::{SECOND, now};

    const SECRET: Secret = [7; 16];
    const HERE: Token = 1;

    fn links(place: Place, secret: Secret) -> (Links, Poll) {
        let poll = Poll::new().expect("a poll");
        let links = Links::new(place, secret, vec![NodeId(0)], &poll, HERE).expect("a port");
        (links, poll)
    }

    /// Connects a client to the node and lets it say this.
    fn say(node: &Links, lane: u32, secret: Secret, frames: &[Frame]) -> (Links, Poll) {
        let (mut client, poll) = links(Place::Client(lane), secret);
        let port = node.port().expect("a port");
        client.note(Entry { place: Place::Node(NodeId(0)), port });
        client.meet_nodes(&poll).expect("it listens");
        for frame in frames {
            client.send(Place::Node(NodeId(0)), frame, &poll).expect("it listens");
        }
        client.flush(&poll).expect("it listens");
        (client, poll)
    }

    /// All that arrives until some user is gone.
    fn hear(node: &mut Links, poll: &mut Poll) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let late = now() + 20 * SECOND;
        let gone = |arrival: &Arrival| matches!(arrival, Arrival::End(users) if !users.is_empty());
        while !arrivals.iter().any(gone) {
            assert!(now() < late, "nobody is gone");
            for token in poll.wait(Some(late)).expect("a poll") {
                if token == HERE {
                    node.accept(poll).expect("somebody");
                } else {
                    arrivals.extend(node.ready(token, poll).expect("an arrival"));
                }
            }
        }
        arrivals.retain(|arrival| !matches!(arrival, Arrival::End(users) if users.is_empty()));
        arrivals
    }

    fn message(from: Addr) -> Frame {
        Frame::Message { from, to: Addr::Manager(ManagerId(0)), sent: 0, body: vec![1] }
    }

    #[test]
    fn strangers_are_not_heard_and_the_end_comes_after_the_last_message() {
        let (mut node, mut poll) = links(Place::Node(NodeId(0)), SECRET);
        let port = node.port().expect("a port");
        let idle: Vec<_> = (0..STRANGERS + 9)
            .map(|n| {
                let mut stream =
                    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
                stream.write_all(&vec![n as u8; n % 40]).expect("it listens");
                node.accept(&poll).expect("somebody");
                stream
            })
            .collect();
        let user = UserId::first(3);
        let frames = [Frame::Born(user), message(Addr::User(user)), message(Addr::User(user))];
        drop(say(&node, 3, [8; 16], &frames));
        drop(say(&node, 3, SECRET, &frames));
        let arrivals = hear(&mut node, &mut poll);
        let [Arrival::Frame(_), Arrival::Frame(_), Arrival::End(users)] = &arrivals[..] else {
            panic!("{arrivals:?}");
        };
        assert_eq!(users, &[user]);
        drop(idle);
    }

    #[test]
    fn whoever_speaks_for_others_makes_no_sense() {
        let (user, other) = (UserId::first(3), UserId::first(4));
        for wrong in [
            Frame::Born(other),
            message(Addr::User(other)),
            message(Addr::Manager(ManagerId(0))),
            message(Addr::Manager(ManagerId(9))),
        ] {
            let (mut node, mut poll) = links(Place::Node(NodeId(0)), SECRET);
            drop(say(&node, 3, SECRET, &[Frame::Born(user), wrong]));
            let arrivals = hear(&mut node, &mut poll);
            assert!(matches!(arrivals[0], Arrival::Nonsense(Place::Client(3), _)), "{arrivals:?}");
        }
    }

    #[test]
    fn a_connection_that_has_ended_is_told() {
        let (node, _poll) = links(Place::Node(NodeId(0)), SECRET);
        let port = node.port().expect("a port");
        let (mut client, mut poll) = say(&node, 3, SECRET, &[]);
        assert_eq!(client.take_cut(), []);
        drop(node);
        let ready = poll.wait(Some(now() + 20 * SECOND)).expect("a poll");
        for token in ready {
            client.ready(token, &poll).expect("an end");
        }
        assert_eq!(client.take_cut(), [Entry { place: Place::Node(NodeId(0)), port }]);
        client
            .send(Place::Node(NodeId(0)), &Frame::Born(UserId::first(3)), &poll)
            .expect("dropped");
    }

    #[test]
    fn who_is_over_is_not_gone() {
        let (mut node, mut poll) = links(Place::Node(NodeId(0)), SECRET);
        let first = UserId::first(3);
        let next = first.next_generation().expect("there is one");
        drop(say(&node, 3, SECRET, &[Frame::Born(first), Frame::Born(next), Frame::Over(first)]));
        let arrivals = hear(&mut node, &mut poll);
        assert!(matches!(&arrivals[..], [Arrival::End(users)] if users == &[next]), "{arrivals:?}");
    }
}
