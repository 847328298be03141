//! A machine that several tasks share, one at a time.

use std::{
    future::{Future, pending},
    sync::{Arc, Mutex, PoisonError},
};

use mco_host::Host;
use tokio::{sync::watch, task::JoinError};
use tracing::{Span, info};

/// A shared machine; clones refer to the same machine.
#[derive(Debug)]
pub struct SharedHost<S> {
    host: Arc<Mutex<Host<S>>>,
    /// True while the machine is managed; if none, work is done in any case.
    managed: Option<watch::Receiver<bool>>,
}

impl<S> Clone for SharedHost<S> {
    fn clone(&self) -> Self {
        Self { host: Arc::clone(&self.host), managed: self.managed.clone() }
    }
}

impl<S: Send + 'static> SharedHost<S> {
    /// Shares a machine.
    pub fn new(host: Host<S>) -> Self {
        Self { host: Arc::new(Mutex::new(host)), managed: None }
    }

    /// Returns a handle whose work is done only while the machine is managed.
    pub(crate) fn only_while(&self, managed: &watch::Receiver<bool>) -> Self {
        Self { managed: Some(managed.clone()), ..self.clone() }
    }

    /// Runs blocking work on the machine. Work that has started is never cancelled. Never returns if
    /// the machine must be managed for it, and is not any longer.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Host<S>) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let (host, managed, span) = (Arc::clone(&self.host), self.managed.clone(), Span::current());
        let work = move || {
            span.in_scope(|| {
                let mut host = host.lock().unwrap_or_else(PoisonError::into_inner);
                // Not before the machine is locked: it may be forgotten meanwhile.
                managed.is_none_or(|managed| *managed.borrow()).then(|| work(&mut host))
            })
        };
        match tokio::task::spawn_blocking(work).await? {
            Some(done) => Ok(done),
            None => pending().await,
        }
    }
}

/// Runs a task that writes to the machine while the machine is managed.
pub(crate) async fn while_managed<F: Future<Output = ()>>(
    managed: &watch::Receiver<bool>,
    task: impl Fn() -> F,
) {
    let mut managed = managed.clone();
    while managed.wait_for(|managed| *managed).await.is_ok() {
        tokio::select! {
            // First: the task must not begin on a machine that is not managed any longer.
            biased;
            Ok(_) = managed.wait_for(|managed| !*managed) => {
                info!("Stopped writing to the machine, which is forgotten");
            }
            () = task() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    };

    use mco_host::{OfflineSystem, Root};
    use tokio::{sync::oneshot, task::yield_now};

    use super::*;

    /// Counts the running tasks.
    struct Running(Arc<AtomicUsize>);

    impl Running {
        fn begin(count: &Arc<AtomicUsize>) -> Self {
            count.fetch_add(1, Ordering::SeqCst);
            Self(Arc::clone(count))
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_task_runs_only_while_the_machine_is_known_to_be_managed() {
        let (sender, managed) = watch::channel(false);
        let running = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&running);
        let task = while_managed(&managed, || {
            let running = Running::begin(&count);
            async move {
                let _running = running;
                pending::<()>().await;
            }
        });
        let changes = async {
            for is_managed in [false, true, false, true, true, false] {
                sender.send_replace(is_managed);
                for _ in 0..10 {
                    yield_now().await;
                }
                assert_eq!(running.load(Ordering::SeqCst), usize::from(is_managed));
            }
        };
        tokio::select! {
            () = task => panic!("the task ended"),
            () = changes => {}
        }
    }

    #[tokio::test]
    async fn work_that_waits_for_the_machine_is_not_done_once_it_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let system = OfflineSystem::open(&root).unwrap();
        let host = SharedHost::new(Host { root, system });
        let (sender, managed) = watch::channel(true);
        let guarded = host.only_while(&managed);
        let write = |text: &'static str| {
            move |host: &mut Host<OfflineSystem>| host.root.write("/etc/a", text.as_bytes(), 0o600)
        };
        guarded.work(write("managed")).await.unwrap().unwrap();
        // The machine is locked by other work when both the write and its removal are asked for.
        let (go, gate) = mpsc::channel::<()>();
        let (begin, started) = oneshot::channel();
        let blocking = tokio::spawn({
            let host = host.clone();
            let wait = move || begin.send(()).is_ok() && gate.recv().is_err();
            async move { host.work(move |_| wait()).await }
        });
        started.await.unwrap();
        let late = tokio::spawn({
            let guarded = guarded.clone();
            async move { drop(guarded.work(write("late")).await) }
        });
        yield_now().await;
        sender.send_replace(false);
        drop(go);
        assert!(blocking.await.unwrap().unwrap());
        host.work(|host| host.root.remove("/etc/a")).await.unwrap().unwrap();
        // The thread of the late work has ended when the runtime ends.
        late.abort();
        drop(guarded);
        while Arc::strong_count(&host.host) > 1 {
            yield_now().await;
        }
        let left = host.work(|host| host.root.exists("/etc/a")).await.unwrap().unwrap();
        assert!(!left, "the file was written anew");
    }
}
