//! Who is who, and which register is where.

/// Processors that make a fixed number of operations each. The paper gives each operation an
/// identity of its own: operation i of processor p is identity `p + n*i`. With one operation each,
/// identities are processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ids {
    processors: usize,
    operations: usize,
}

impl Ids {
    /// `processors` processors that make `operations` operations each.
    ///
    /// # Panics
    /// If there are more than 32 processors or 64 identities, which are bits of one word.
    pub(crate) fn new(processors: usize, operations: usize) -> Self {
        assert!((1..=32).contains(&processors), "{processors} processors: 1 to 32 are possible");
        let ids = processors * operations;
        assert!((1..=64).contains(&ids), "{ids} operations in all: 1 to 64 are possible");
        Self { processors, operations }
    }

    /// How many processors there are.
    pub(crate) fn processors(&self) -> usize {
        self.processors
    }

    /// How many identities there are.
    pub(crate) fn all(&self) -> usize {
        self.processors * self.operations
    }

    /// All of them, as bits.
    pub(super) fn everybody(&self) -> u64 {
        u64::MAX >> (64 - self.all())
    }

    /// The identity of an operation.
    pub(crate) fn id(&self, processor: usize, operation: usize) -> usize {
        processor + self.processors * operation
    }

    /// The processor behind an identity.
    pub(crate) fn owner(&self, id: usize) -> usize {
        id % self.processors
    }

    /// Which of its processor's operations an identity is.
    pub(crate) fn operation(&self, id: usize) -> usize {
        id / self.processors
    }

    /// How many registers each processor needs.
    pub(crate) fn slots(&self) -> usize {
        self.operations * self.stride()
    }

    /// Registers of one identity: levels of the snapshot and of the renaming at each depth, the
    /// snapshot posted, the item posted.
    fn stride(&self) -> usize {
        self.processors + 3
    }

    fn base(&self, id: usize) -> usize {
        self.operation(id) * self.stride()
    }

    /// The level in an instance of immediate snapshot: the first at depth 0, those of the
    /// renaming below.
    pub(crate) fn level(&self, id: usize, depth: usize) -> usize {
        self.base(id) + depth
    }

    /// The immediate snapshot posted (l1b).
    pub(crate) fn posted(&self, id: usize) -> usize {
        self.base(id) + self.processors + 1
    }

    /// The first item posted (l3).
    pub(crate) fn item(&self, id: usize) -> usize {
        self.base(id) + self.processors + 2
    }
}
