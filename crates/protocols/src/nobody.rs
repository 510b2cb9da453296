//! Protocols among users alone, without managers.

/// Writes the manager role of a protocol that has none: a type without values.
macro_rules! no_manager {
    ($protocol:ty) => {
        /// There is none: users deal with each other.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum Manager {}

        impl holdall_core::Role for Manager {
            type P = $protocol;
            type Call = holdall_core::Never;
            type Msg = holdall_core::Never;
            type Timer = holdall_core::Never;

            fn step(
                &mut self,
                _: &$protocol,
                _: holdall_core::Event<Self>,
                _: &mut holdall_core::Outbox<$protocol, holdall_core::Never>,
            ) {
                match *self {}
            }

            fn check(&self, _: &$protocol) -> Result<(), holdall_core::Broken> {
                match *self {}
            }

            fn is_idle(&self) -> bool {
                match *self {}
            }
        }
    };
}

pub(crate) use no_manager;
