//! What the engine needs of a protocol.

use holdall_core::{Addr, Broken, CellId, ManagerId, Protocol, RequestId, Resize, Role, UserId};
use holdall_protocols::house::{self, House, ToManager, ToUser};

use super::{Defect, Engine};

/// What the engine needs of a manager beyond being one whose pools may change.
pub trait Serving: Role<Call = Resize> {
    /// A place in the order of service.
    type Place: Copy + Ord;

    /// Whether it picks units and tells them with a grant; otherwise it only counts them.
    const PICKS: bool = true;

    /// The variant of its protocol for a manager beside which there are others.
    const VARIANT: Option<&'static str> = None;

    /// The cell whose users are beside it.
    fn settle(_: &mut Self::P, _: CellId) {}

    /// The requests that wait behind a place, in the order in which they would be served: first
    /// those out of turn, then the others as they came.
    fn waiting_after(
        &self,
        after: Option<Self::Place>,
    ) -> impl Iterator<Item = (Self::Place, RequestId)> + '_;

    /// Those who wait and are not served in the order in which they came, but before all others.
    fn out_of_turn(&self) -> impl Iterator<Item = (Self::Place, RequestId)> + '_;

    /// The place of a request, if it waits out of turn.
    fn place_out_of_turn(&self, request: RequestId) -> Option<Self::Place>;

    /// Whether it holds what a request asked for.
    fn holds(&self, request: RequestId) -> bool;

    /// Whether a request is among those that wait.
    fn has_waiting(&self, request: RequestId) -> bool;

    /// What a user here says to the manager of another cell. Protocols of which all roles are in one cell say nothing.
    fn send_to_guard(
        _: &mut Engine<Self::P>,
        _: ManagerId,
        _: Addr,
        _: <Self::P as Protocol>::ToManager,
    ) {
    }

    /// What the manager here says to a user of another cell.
    ///
    /// # Errors
    /// If an invariant is broken.
    fn send_to_home(
        _: &mut Engine<Self::P>,
        _: UserId,
        _: <Self::P as Protocol>::ToUser,
    ) -> Result<(), Defect> {
        Ok(())
    }

    /// The manager here is about to hear from a user here.
    fn is_told_by_own(_: &mut Engine<Self::P>, _: Addr, _: &<Self::P as Protocol>::ToManager) {}

    /// The manager here says something to a user here.
    ///
    /// # Errors
    /// If an invariant is broken.
    fn tells_own(
        _: &mut Engine<Self::P>,
        _: UserId,
        _: &<Self::P as Protocol>::ToUser,
    ) -> Result<(), Defect> {
        Ok(())
    }

    /// A request of another home is ended here.
    ///
    /// # Errors
    /// If an invariant is broken.
    fn end_foreign(_: &mut Engine<Self::P>, _: UserId) -> Result<(), Defect> {
        Ok(())
    }

    /// Its invariants, as far as the last step can have broken them: at a cost that does not grow
    /// with all it knows.
    ///
    /// # Errors
    /// Names the invariant that is broken.
    fn check_last_step(&self) -> Result<(), Broken>;
}

impl Serving for house::Manager {
    type Place = house::Place;

    const VARIANT: Option<&'static str> = Some("resend=2");

    fn settle(cfg: &mut House, own: CellId) {
        cfg.settle(own);
    }

    fn holds(&self, request: RequestId) -> bool {
        self.held_under(request).is_some()
    }

    fn has_waiting(&self, request: RequestId) -> bool {
        Self::has_waiting(self, request)
    }

    fn send_to_guard(engine: &mut Engine<House>, to: ManagerId, from: Addr, message: ToManager) {
        engine.send_to_guard(to, from, message);
    }

    fn send_to_home(engine: &mut Engine<House>, to: UserId, message: ToUser) -> Result<(), Defect> {
        engine.send_to_home(to, message)
    }

    fn is_told_by_own(engine: &mut Engine<House>, from: Addr, message: &ToManager) {
        engine.is_told_by_own(from, message);
    }

    fn tells_own(engine: &mut Engine<House>, to: UserId, message: &ToUser) -> Result<(), Defect> {
        engine.tells_own(to, message)
    }

    fn end_foreign(engine: &mut Engine<House>, user: UserId) -> Result<(), Defect> {
        engine.end_foreign(user)
    }

    fn waiting_after(
        &self,
        after: Option<Self::Place>,
    ) -> impl Iterator<Item = (Self::Place, RequestId)> + '_ {
        Self::waiting_after(self, after)
    }

    fn out_of_turn(&self) -> impl Iterator<Item = (Self::Place, RequestId)> + '_ {
        Self::out_of_turn(self)
    }

    fn place_out_of_turn(&self, request: RequestId) -> Option<Self::Place> {
        Self::place_out_of_turn(self, request)
    }

    fn check_last_step(&self) -> Result<(), Broken> {
        Self::check_last_step(self)
    }
}
