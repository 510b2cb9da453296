//! A protocol to be simulated, with its type forgotten.

use holdall_core::{About, Known, Options, Protocol, Topology, Unsupported};
use holdall_protocols::coordinator::Coordinator;
use holdall_protocols::{Visitor, variant_of};

use crate::clients::{self, Clients};
use crate::stats::RunStats;
use crate::world::{Failure, Network, World};
use crate::{Detector, Error, Limit, Settings, workload};

/// The name of the yardstick: see [`Contender::oracle`].
pub const ORACLE: &str = "oracle";

/// What the name of the other yardstick begins with: see [`Contender::ideal`].
const IDEAL: &str = "ideal:";

/// A protocol to be simulated. Whoever makes one chooses where the protocol comes from:
/// [`Contender::of`] takes any, [`Contender::named`] one that `holdall-protocols` lists.
#[derive(Clone, Debug)]
pub struct Contender {
    name: String,
    about: About,
    options: Options,
    knows: Knows,
    simulate: fn(&Run<'_>) -> Result<RunStats, Error>,
    play: fn(&Self, &Settings, &mut dyn Clients) -> Result<RunStats, Error>,
}

/// How those who decide come to know what there is to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Knows {
    /// By messages.
    ByMessage,
    /// At once.
    Everything,
    /// At once; but what is handed over travels.
    AllButHandOver,
}

/// One run of a protocol.
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) settings: &'a Settings,
    pub(super) contender: &'a Contender,
    /// Its number.
    pub(super) graph: u32,
    /// Is told now and then how many ticks went by.
    pub(super) progress: &'a (dyn Fn(u64) + Sync),
}

impl Contender {
    /// Any protocol, under a name for the report.
    ///
    /// # Errors
    /// If there is no such variant of it.
    pub fn of<P: Protocol>(name: &str, options: Options) -> Result<Self, Unsupported> {
        let about = P::about(options.variant.as_deref())?;
        let (simulate, play) = (simulate::<P>, play::<P>);
        let knows = Knows::ByMessage;
        Ok(Self { name: name.into(), about, options, knows, simulate, play })
    }

    /// The protocol that `holdall-protocols` lists under this name, or a [`yardstick`](Self::yardstick).
    ///
    /// # Errors
    /// If there is no such protocol, or no such variant.
    #[inline] // so that it is compiled, for every protocol there is, only where it is used
    pub fn named(name: &str) -> Result<Self, Error> {
        if let Some(yardstick) = Self::yardstick(name) {
            return Ok(yardstick?);
        }
        Ok(holdall_protocols::with(name, Named(name))??)
    }

    /// The yardstick of this name, if it is the name of one: `oracle`, `ideal:reserve=2`.
    pub fn yardstick(name: &str) -> Option<Result<Self, Unsupported>> {
        match name.strip_prefix(IDEAL) {
            Some(variant) => Some(Self::ideal(name, variant)),
            None => (name == ORACLE).then(Self::oracle),
        }
    }

    /// A yardstick: it decides at once like that variant of `coordinator`, seeing everything; but a use begins
    /// only when the request has come to the manager of each of its pools, the last release of the pool has
    /// come there too, and the answers of all have come back.
    ///
    /// # Errors
    /// If there is no such variant of `coordinator`.
    fn ideal(name: &str, variant: &str) -> Result<Self, Unsupported> {
        let options = Options { variant: Some(variant.into()), ..Options::default() };
        Ok(Self { knows: Knows::AllButHandOver, ..Self::of::<Coordinator>(name, options)? })
    }

    /// A yardstick: it sees all requests at once and grants whatever fits, without any message
    /// (`coordinator:skip`, in no time).
    ///
    /// # Errors
    /// Never, as long as there is a `coordinator:skip`.
    pub fn oracle() -> Result<Self, Unsupported> {
        let options = Options { variant: Some("skip".into()), ..Options::default() };
        Ok(Self { knows: Knows::Everything, ..Self::of::<Coordinator>(ORACLE, options)? })
    }

    /// The same without some of its rules.
    #[must_use]
    pub fn without(mut self, rules: &[String]) -> Self {
        self.options.without = rules.to_vec();
        self
    }

    /// One run with clients that decide themselves who asks when.
    pub(crate) fn play(
        &self,
        settings: &Settings,
        clients: &mut dyn Clients,
    ) -> Result<RunStats, Error> {
        (self.play)(self, settings, clients)
    }

    /// What it is called in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Whether it can be put to such a workload, by what it says of itself.
    ///
    /// # Errors
    /// Says what it cannot do.
    pub fn supports(&self, settings: &Settings) -> Result<(), Error> {
        let About { assumes, .. } = &self.about;
        let largest = settings.largest_request();
        let limit = if let Some(most) = assumes.needs_max.filter(|most| largest > *most) {
            Limit::Needs { most, asked: largest }
        } else if settings.units > 1 && !assumes.units {
            Limit::Units
        } else if settings.named > 0.0 && !assumes.named {
            Limit::Named
        } else if settings.faults.iter().any(|fault| fault.rate.probability > 0.0)
            && !assumes.departures
        {
            Limit::Departures
        } else if settings.loss > 0.0 && assumes.no_loss {
            Limit::Loss { linked: self.is_linked() }
        } else if settings.duplicates > 0.0 && assumes.exactly_once {
            Limit::Duplicates { linked: self.is_linked() }
        } else if settings.detector == Detector::Reclaim && !assumes.suspicions {
            Limit::Reclaiming
        } else {
            return Ok(());
        };
        Err(Error::Limit { protocol: self.name.clone(), limit })
    }

    /// Whether it can be had over links that make good what the network does.
    fn is_linked(&self) -> bool {
        let name = format!("linked:{}", self.name);
        holdall_protocols::with(&name, IsThere(&name)).unwrap_or(false)
    }
}

impl Run<'_> {
    pub(super) fn go(&self) -> Result<RunStats, Error> {
        (self.contender.simulate)(self)
    }
}

fn simulate<P: Protocol>(run: &Run<'_>) -> Result<RunStats, Error> {
    let Run { settings, contender, graph, progress } = *run;
    let mut topology = Topology::of_pools(settings.pools());
    if contender.about.assumes.participants == Known::Known {
        topology.users = workload::pools_of_users(settings, graph);
    }
    let cfg = P::new(&topology, &contender.options)?;
    let network = Network::new(&contender.about, contender.knows);
    let done = World::new(cfg, settings, graph, network).run(progress);
    done.map_err(|wrong| went_wrong(contender, settings, graph, &wrong))
}

fn play<P: Protocol>(
    contender: &Contender,
    settings: &Settings,
    clients: &mut dyn Clients,
) -> Result<RunStats, Error> {
    let mut topology = Topology::of_pools(clients::pools(settings, clients));
    if contender.about.assumes.participants == Known::Known {
        topology.users = clients.pools_of_each();
    }
    let cfg = P::new(&topology, &contender.options)?;
    let network = Network::new(&contender.about, contender.knows);
    let done = World::played(cfg, settings, network, clients).run(|_| {});
    done.map_err(|wrong| went_wrong(contender, settings, 0, &wrong))
}

fn went_wrong(contender: &Contender, settings: &Settings, graph: u32, wrong: &Failure) -> Error {
    Error::Failure {
        protocol: contender.name.clone(),
        graph,
        seed: settings.seed,
        tick: wrong.tick,
        what: format!("{:?}: {}", wrong.who, wrong.what),
    }
}

/// Whether a protocol has the variant that is named.
struct IsThere<'a>(&'a str);

impl Visitor for IsThere<'_> {
    type Out = bool;

    fn visit<P: Protocol>(self) -> bool {
        P::about(variant_of::<P>(self.0)).is_ok()
    }
}

struct Named<'a>(&'a str);

impl Visitor for Named<'_> {
    type Out = Result<Contender, Unsupported>;

    fn visit<P: Protocol>(self) -> Self::Out {
        let variant = variant_of::<P>(self.0).map(Into::into);
        Contender::of::<P>(self.0, Options { variant, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use holdall_protocols::chandy_misra::ChandyMisra;
    use holdall_protocols::datta::Two;
    use holdall_protocols::ordered::Ordered;

    use super::*;
    use crate::{Fault, FaultKind, FaultRate, Stage};

    /// Only this protocol: to be had by name, all there are would have to be compiled (`tests/simulate.rs`).
    fn contender<P: Protocol>() -> Contender {
        Contender::of::<P>(P::FAMILY, Options::default()).expect("a protocol")
    }

    /// Protocols that can do less than those there are.
    #[test]
    fn what_a_protocol_cannot_do_is_refused() {
        let refused = |settings: &Settings, change: fn(&mut Contender)| {
            let mut contender = contender::<Ordered>();
            assert_eq!(contender.supports(settings), Ok(()));
            change(&mut contender);
            let error = crate::run(settings, &[contender], &|_| {}).expect_err("it cannot");
            assert!(matches!(error, Error::Limit { .. }), "{error}");
        };
        let usual = Settings { per_request: 3, ..Settings::default() };
        refused(&usual, |contender| contender.about.assumes.needs_max = Some(2));
        let units = Settings { units: 2, ..usual.clone() };
        refused(&units, |contender| contender.about.assumes.units = false);
        let named = Settings { named: 0.3, ..units.clone() };
        refused(&named, |contender| contender.about.assumes.named = false);
        let rate = FaultRate { stage: Stage::Using, probability: 0.1 };
        let faults = Settings { faults: vec![Fault { kind: FaultKind::Stop, rate }], ..usual };
        refused(&faults, |contender| contender.about.assumes.departures = false);
    }

    #[test]
    fn links_and_detectors_that_a_protocol_cannot_do_with_are_refused() {
        let usual = Settings::default;
        for (settings, limit) in [
            (Settings { loss: 0.1, ..usual() }, Limit::Loss { linked: true }),
            (Settings { duplicates: 0.1, ..usual() }, Limit::Duplicates { linked: true }),
            (Settings { detector: Detector::Reclaim, ..usual() }, Limit::Reclaiming),
        ] {
            let ordered = contender::<Ordered>();
            let protocol = ordered.name.clone();
            assert_eq!(ordered.supports(&settings), Err(Error::Limit { protocol, limit }));
        }
    }

    #[test]
    fn links_are_recommended_where_there_are_any() {
        let lossy = Settings { loss: 0.1, ..Settings::default() };
        let said =
            |contender: &Contender| contender.supports(&lossy).expect_err("it cannot").to_string();
        assert!(said(&contender::<Two>()).ends_with("put it over links, as linked:datta"));
        let oracle = Contender::oracle().expect("the yardstick");
        assert!(said(&oracle).ends_with("every message arrives"));
    }

    #[test]
    fn faults_that_never_happen_are_no_faults() {
        let rate = FaultRate { stage: Stage::Using, probability: 0.0 };
        let faults = vec![Fault { kind: FaultKind::Stop, rate }];
        let never = Settings { faults, ..Settings::default() };
        let diners = contender::<ChandyMisra>();
        assert_eq!(diners.supports(&never), Ok(()));
    }

    #[test]
    fn yardsticks_know_more_than_messages_tell() {
        let yardstick = |name| Contender::yardstick(name).expect("the name of one");
        assert_eq!(yardstick("oracle").expect("there").knows, Knows::Everything);
        let ideal = yardstick("ideal:reserve=2").expect("there");
        assert_eq!((ideal.name(), ideal.knows), ("ideal:reserve=2", Knows::AllButHandOver));
        assert!(yardstick("ideal:fast").is_err());
        assert!(Contender::yardstick("coordinator:skip").is_none());
    }
}
