//! What those who wait can expect, for everybody to see.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdall_wire::{Expected, Outlook, Prospects, RequestNo};

#[derive(Debug, Default)]
struct Notice {
    expected: BTreeMap<RequestNo, Expected>,
    unknown: String,
}

/// What is on it is replaced as a whole.
#[derive(Clone, Debug)]
pub(super) struct Board(Arc<Mutex<Arc<Notice>>>);

/// Of those of whom nothing else can be said.
const NOT_YET: &str = "it is still being worked out, which is done for the first 500 who wait";

impl Default for Board {
    fn default() -> Self {
        let notice = Notice { unknown: NOT_YET.into(), ..Notice::default() };
        Self(Arc::new(Mutex::new(Arc::new(notice))))
    }
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, Arc<Notice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self) -> Arc<Notice> {
        self.lock().clone()
    }

    /// This is to be expected.
    pub(super) fn post(&self, expected: Vec<Expected>) {
        let expected = expected.into_iter().map(|one| (one.request, one)).collect();
        *self.lock() = Arc::new(Notice { expected, unknown: NOT_YET.into() });
    }

    /// Nothing can be said.
    pub(super) fn clear(&self, why: String) {
        *self.lock() = Arc::new(Notice { unknown: why, ..Notice::default() });
    }

    pub(super) fn outlook(&self, request: RequestNo) -> Outlook {
        let notice = self.seen();
        match notice.expected.get(&request) {
            Some(expected) => Outlook::Expected(*expected),
            None => Outlook::Unknown(notice.unknown.clone()),
        }
    }

    pub(super) fn prospects(&self) -> Prospects {
        let notice = self.seen();
        let expected = notice.expected.values().copied().collect();
        Prospects { expected, unknown: notice.unknown.clone() }
    }
}
