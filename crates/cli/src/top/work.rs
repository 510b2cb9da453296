//! What was asked of the agent, one after the other: a release that was begun is not broken off by another key, nor
//! forgotten by whatever ends the command.

use std::collections::VecDeque;
use std::pin::Pin;

use super::state::Act;

/// Something that is being done meanwhile.
pub(super) type Doing<'a, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + 'a>>;

/// What is being done, and what is to be done after it.
pub(super) struct Work<'a, T> {
    how: Box<dyn Fn(Act) -> Doing<'a, T> + 'a>,
    doing: Option<(Act, Doing<'a, T>)>,
    to_do: VecDeque<Act>,
}

impl<'a, T> Work<'a, T> {
    /// Nothing yet, and how everything is done.
    pub(super) fn new(how: impl Fn(Act) -> Doing<'a, T> + 'a) -> Self {
        Self { how: Box::new(how), doing: None, to_do: VecDeque::new() }
    }

    /// This is to be done, too.
    pub(super) fn add(&mut self, act: Act) {
        if matches!(act, Act::Explain(_)) {
            // Of several explanations the last is wanted.
            self.to_do.retain(Act::is_release);
        }
        self.to_do.push_back(act);
    }

    /// Waits for what is done next; as long as there is nothing to do, for ever. If this is dropped, the work goes on with the
    /// next call.
    pub(super) async fn next(&mut self) -> anyhow::Result<T> {
        match self.step().await {
            Some((_, done)) => done,
            None => std::future::pending().await,
        }
    }

    /// Nobody reads explanations any more; releases are done, for they were confirmed. Tells what became of each that did not simply
    /// succeed.
    pub(super) async fn release(&mut self, mut told: impl FnMut(&Act, anyhow::Result<T>)) {
        self.to_do.retain(Act::is_release);
        self.doing.take_if(|(act, _)| !act.is_release());
        while let Some((act, done)) = self.step().await {
            told(&act, done);
        }
    }

    /// The releases that are not done.
    pub(super) fn left(&self) -> impl Iterator<Item = &Act> {
        self.doing.iter().map(|(act, _)| act).chain(&self.to_do).filter(|act| act.is_release())
    }

    async fn step(&mut self) -> Option<(Act, anyhow::Result<T>)> {
        if self.doing.is_none() {
            let act = self.to_do.pop_front()?;
            self.doing = Some((act.clone(), (self.how)(act)));
        }
        let (_, doing) = self.doing.as_mut()?;
        let done = doing.await;
        self.doing.take().map(|(act, _)| (act, done))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use holdall_wire::RequestNo;

    use super::*;

    fn release(request: u64) -> Act {
        Act::Release { request: RequestNo(request), force: None }
    }

    fn explain(request: u64) -> Act {
        Act::Explain(RequestNo(request))
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(future)
    }

    /// Explanations never come; a release takes a moment, and that of 9 fails.
    fn work(done: &RefCell<Vec<Act>>) -> Work<'_, ()> {
        Work::new(move |act| {
            Box::pin(async move {
                match &act {
                    Act::Explain(_) => std::future::pending().await,
                    Act::Release { request, .. } => {
                        tokio::task::yield_now().await;
                        anyhow::ensure!(*request != RequestNo(9), "it is not yours");
                    }
                }
                done.borrow_mut().push(act);
                Ok(())
            })
        })
    }

    #[test]
    fn what_was_confirmed_is_released_though_one_leaves_while_an_explanation_is_made() {
        block_on(async {
            let (done, mut said) = (RefCell::default(), Vec::new());
            let mut work = work(&done);
            work.add(explain(1));
            // As when a key is pressed meanwhile.
            let moment = Duration::from_millis(1);
            tokio::time::timeout(moment, work.next()).await.expect_err("it is slow");
            let more = [release(9), explain(2), explain(3), release(4)];
            more.into_iter().for_each(|act| work.add(act));
            assert_eq!(work.left().cloned().collect::<Vec<_>>(), [release(9), release(4)]);
            work.release(|act, done| {
                said.extend(done.err().map(|error| format!("{act:?}: {error}")));
            })
            .await;
            assert_eq!(*done.borrow(), [release(4)]);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("9") && said[0].ends_with("it is not yours"), "{said:?}");
            assert_eq!(work.left().count(), 0);
        });
    }

    #[test]
    fn a_release_that_was_begun_is_done_once() {
        block_on(async {
            let done = RefCell::default();
            let mut work = work(&done);
            work.add(release(4));
            tokio::select! {
                biased;
                _ = work.next() => panic!("it takes a moment"),
                () = std::future::ready(()) => {}
            }
            assert_eq!(work.left().cloned().collect::<Vec<_>>(), [release(4)]);
            work.release(|_, done| done.expect("done")).await;
            assert_eq!(*done.borrow(), [release(4)]);
        });
    }
}
