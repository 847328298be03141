//! The steps of a deletion that follow from others.
//!
//! A chain of owners may be as long as there are objects, so that the steps are in a queue: none calls
//! another one.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use futures::future::join_all;
use serde_json::Value;

use super::Server;
use crate::{resource::Resource, store::Key};

/// Maximum number of objects that are deleted at the same time. Their writes share the flushes.
const MAX_TOGETHER: usize = 64;

/// One step.
#[derive(Debug)]
pub(super) enum Step {
    /// Deletes an object with these options.
    Delete(Arc<Resource>, Key, Value),
    /// Deletes an object whose owners are gone.
    Collect(Arc<Resource>, Key),
    /// Continues the deletion of an object that waits for its dependents.
    Finalize(Arc<Resource>, Key),
    /// Removes a namespace that is being deleted and is empty.
    FinishNamespace(String),
    /// Removes a definition that is being deleted and has no objects.
    FinishDefinition(String),
}

impl Step {
    /// Returns the identity of a step that is done once for all the steps that ask for it.
    fn shared(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Delete(..) | Self::Collect(..) => None,
            Self::Finalize(resource, key) => {
                let place = format!("{}/{}/{}", resource.collection, key.namespace, key.name);
                Some(("finalize", place))
            }
            Self::FinishNamespace(name) => Some(("namespace", name.clone())),
            Self::FinishDefinition(name) => Some(("definition", name.clone())),
        }
    }
}

/// The steps that are left, in order.
#[derive(Debug, Default)]
pub(super) struct Steps {
    queue: VecDeque<Step>,
    pending: HashSet<(&'static str, String)>,
}

impl Steps {
    /// Adds a step at the end, unless it is already there.
    pub(super) fn add(&mut self, step: Step) {
        let is_new = step.shared().is_none_or(|shared| self.pending.insert(shared));
        if is_new {
            self.queue.push_back(step);
        }
    }

    fn next(&mut self) -> Option<Step> {
        let step = self.queue.pop_front()?;
        if let Some(shared) = step.shared() {
            self.pending.remove(&shared);
        }
        Some(step)
    }

    /// Returns the next steps that may be done at the same time: one, or several that concern single
    /// objects.
    fn next_together(&mut self) -> Vec<Step> {
        let mut out: Vec<Step> = self.next().into_iter().collect();
        let is_single = |step: &Step| step.shared().is_none();
        while out.iter().all(is_single)
            && out.len() < MAX_TOGETHER
            && self.queue.front().is_some_and(is_single)
        {
            out.extend(self.next());
        }
        out
    }
}

impl Server {
    /// Does all steps, and those that follow from them.
    pub(super) async fn run(&self, mut steps: Steps) {
        loop {
            let together = steps.next_together();
            if together.is_empty() {
                return;
            }
            // In their order, as if they were done one after the other.
            for more in join_all(together.into_iter().map(|step| self.run_one(step))).await {
                for step in more.queue {
                    steps.add(step);
                }
            }
        }
    }

    /// Does a step. Returns those that follow from it.
    async fn run_one(&self, step: Step) -> Steps {
        let mut steps = Steps::default();
        match step {
            // An object that another request removed meanwhile is as good as deleted.
            Step::Delete(resource, key, options) => {
                let _ = self.remove_one(&resource, &key, &options, false, &mut steps).await;
            }
            Step::Collect(resource, key) => {
                if let Some(object) = self.store.get(&resource.collection, &key) {
                    self.collect(&resource, &object, &mut steps).await;
                }
            }
            Step::Finalize(resource, key) => self.finalize(&resource, &key, &mut steps).await,
            Step::FinishNamespace(name) => self.finish_namespace(&name, &mut steps).await,
            Step::FinishDefinition(name) => self.finish_definition(&name, &mut steps).await,
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_deleted_together_up_to_the_next_other_step() {
        let pods = Arc::new(crate::resource::builtin::by_plural("pods"));
        let mut steps = Steps::default();
        for number in 0..70 {
            let key = Key::new("n", &number.to_string());
            steps.add(Step::Delete(Arc::clone(&pods), key, Value::Null));
        }
        steps.add(Step::FinishNamespace("n".to_owned()));
        steps.add(Step::FinishNamespace("m".to_owned()));
        steps.add(Step::Collect(pods, Key::new("n", "a")));
        let counts = std::iter::from_fn(|| Some(steps.next_together().len())).take(6);
        assert_eq!(counts.collect::<Vec<_>>(), [MAX_TOGETHER, 6, 1, 1, 1, 0]);
    }

    #[test]
    fn a_step_that_waits_is_not_added_again() {
        let pods = Arc::new(crate::resource::builtin::by_plural("pods"));
        let mut steps = Steps::default();
        for name in ["a", "b"] {
            steps.add(Step::Collect(Arc::clone(&pods), Key::new("n", name)));
            steps.add(Step::FinishNamespace("n".to_owned()));
        }
        let order: Vec<String> = std::iter::from_fn(|| steps.next())
            .map(
                |step| {
                    if let Step::Collect(_, key) = step { key.name } else { format!("{step:?}") }
                },
            )
            .collect();
        assert_eq!(order, ["a", "FinishNamespace(\"n\")", "b"]);
        steps.add(Step::FinishNamespace("n".to_owned()));
        assert!(steps.next().is_some(), "a step that was done can follow again");
    }
}
