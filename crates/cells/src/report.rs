//! What a run came to.

/// What a run came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How often something was granted.
    pub grants: u64,
    /// Of these, how often other cells guarded some of it.
    pub spanning: u64,
    /// Of these, how often as a reservation.
    pub reserved: u64,
    /// How often a reservation was renewed.
    pub renewed: u64,
    /// How often a grant was taken away.
    pub lost: u64,
    /// How often somebody was refused.
    pub refused: u64,
    /// How often a machine was not let in that was started from a copy.
    pub strangers: u64,
    /// How often something reserved was used on after its home had lost its log.
    pub unclaimed: u64,
    /// How often a link was cut because of what came over it.
    pub cut: u64,
    /// What went wrong.
    pub faults: u64,
    /// What happened.
    pub events: u64,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, other: Self) {
        self.grants += other.grants;
        self.spanning += other.spanning;
        self.reserved += other.reserved;
        self.renewed += other.renewed;
        self.lost += other.lost;
        self.refused += other.refused;
        self.strangers += other.strangers;
        self.unclaimed += other.unclaimed;
        self.cut += other.cut;
        self.faults += other.faults;
        self.events += other.events;
    }
}
