//! Laying one config over another.
//!
//! Lists merge by key: an item of the child that the parent has too is merged into it, where it
//! stands; the others are added behind, in the child's order. A list declared `append` has no keys.
//! Files, directories and links share one key space, the path: what the child says about a path
//! replaces a parent's entry of another kind. So do the kernel arguments that should and should not
//! exist. A child header without a value takes the parent's away.

use std::{borrow::Cow, collections::HashMap};

use crate::{
    config::{Config, KernelArguments, Storage},
    object::{Field, Object},
};

/// Something that stands in a list.
pub(crate) trait Item: Field + PartialEq {
    /// What makes two items of a list the same one.
    fn key(&self) -> Cow<'_, str>;

    /// Lays the child's item over this one.
    fn absorb(&mut self, child: Self);

    /// Whether this item, coming from a child, takes the parent's away.
    fn removes(&self) -> bool {
        false
    }
}

impl Item for String {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }

    fn absorb(&mut self, child: Self) {
        *self = child;
    }
}

/// Lays `child` over `parent`.
#[must_use]
pub fn merge(mut parent: Config, child: Config) -> Config {
    parent.merge_members(child);
    parent
}

/// Below this many items a scan is quicker than an index.
const SMALL: usize = 8;

/// Lays the list `child` over `parent`.
///
/// Invariant: keys are unique in each list, which validation makes sure of.
pub(crate) fn lists<T: Item>(parent: &mut Vec<T>, child: Vec<T>) {
    if child.is_empty() {
        return;
    }
    if parent.is_empty() {
        *parent = child;
        return;
    }
    let places = places(parent, &child);
    let mut removed = Vec::new();
    let known = parent.len();
    for (item, place) in child.into_iter().zip(places) {
        match place.and_then(|at| parent.get_mut(at).map(|target| (at, target))) {
            Some((at, _)) if item.removes() => removed.push(at),
            Some((_, target)) => target.absorb(item),
            None => parent.push(item),
        }
    }
    if !removed.is_empty() {
        let mut at = 0..;
        parent.retain(|_| !at.next().is_some_and(|at: usize| at < known && removed.contains(&at)));
    }
}

/// Where in `parent` each item of `child` stands already.
fn places<T: Item>(parent: &[T], child: &[T]) -> Vec<Option<usize>> {
    if child.len() <= SMALL {
        let find = |key: &str| parent.iter().position(|item| item.key() == key);
        return child.iter().map(|item| find(&item.key())).collect();
    }
    let index: HashMap<Cow<'_, str>, usize> =
        parent.iter().enumerate().map(|(at, item)| (item.key(), at)).collect();
    child.iter().map(|item| index.get(&item.key()).copied()).collect()
}

/// Removes from `parent` what `child` says of the same paths in another list.
pub(crate) fn settle_paths(parent: &mut Storage, child: &Storage) {
    let Storage { directories, files, links, .. } = child;
    parent.directories.retain(|item| !has(files, &item.path) && !has(links, &item.path));
    parent.files.retain(|item| !has(directories, &item.path) && !has(links, &item.path));
    parent.links.retain(|item| !has(directories, &item.path) && !has(files, &item.path));
}

/// Removes from `parent` what `child` says of the same arguments in the other list.
pub(crate) fn settle_arguments(parent: &mut KernelArguments, child: &KernelArguments) {
    parent.should_exist.retain(|argument| !has(&child.should_not_exist, argument));
    parent.should_not_exist.retain(|argument| !has(&child.should_exist, argument));
}

fn has<T: Item>(items: &[T], key: &str) -> bool {
    items.iter().any(|item| item.key() == key)
}

#[cfg(test)]
mod tests;
