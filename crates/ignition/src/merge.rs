//! Merging of two configs, a parent and a child.
//!
//! Lists merge by key: an item of the child that the parent has too is merged into the parent's
//! item, in its position; the other items are appended, in the child's order. A list declared
//! `append` has no keys. Files, directories and links share one key space, the path: the child's
//! entry for a path replaces a parent's entry of another kind. The same holds for the kernel
//! arguments that should and should not exist. A child header without a value removes the parent's
//! header.

use std::{borrow::Cow, collections::HashMap};

use crate::{
    config::{Config, KernelArguments, Storage},
    object::{Field, Object},
};

/// An item of a list.
pub(crate) trait Item: Field + PartialEq {
    /// Returns the key that identifies the item in its list.
    fn key(&self) -> Cow<'_, str>;

    /// Merges the child's item into this one.
    fn merge_child(&mut self, child: Self);

    /// Returns true if this item, coming from a child, removes the parent's item.
    fn is_removal(&self) -> bool {
        false
    }
}

impl Item for String {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }

    fn merge_child(&mut self, child: Self) {
        *self = child;
    }
}

/// Merges `child` into `parent`.
#[must_use]
pub fn merge(mut parent: Config, child: Config) -> Config {
    parent.merge_members(child);
    parent
}

/// Number of items up to which a linear search is faster than an index.
const MAX_SEARCHED_ITEMS: usize = 8;

/// Merges the list `child` into `parent`.
///
/// Invariant: keys are unique in each list, which validation ensures.
pub(crate) fn merge_lists<T: Item>(parent: &mut Vec<T>, child: Vec<T>) {
    if child.is_empty() {
        return;
    }
    if parent.is_empty() {
        *parent = child;
        return;
    }
    let positions = positions(parent, &child);
    let mut removed = Vec::new();
    let known = parent.len();
    for (item, position) in child.into_iter().zip(positions) {
        match position.and_then(|at| parent.get_mut(at).map(|target| (at, target))) {
            Some((at, _)) if item.is_removal() => removed.push(at),
            Some((_, target)) => target.merge_child(item),
            None => parent.push(item),
        }
    }
    if !removed.is_empty() {
        let mut at = 0..;
        parent.retain(|_| !at.next().is_some_and(|at: usize| at < known && removed.contains(&at)));
    }
}

/// Returns the position in `parent` of each item of `child` that `parent` has too.
fn positions<T: Item>(parent: &[T], child: &[T]) -> Vec<Option<usize>> {
    if child.len() <= MAX_SEARCHED_ITEMS {
        let find = |key: &str| parent.iter().position(|item| item.key() == key);
        return child.iter().map(|item| find(&item.key())).collect();
    }
    let index: HashMap<Cow<'_, str>, usize> =
        parent.iter().enumerate().map(|(at, item)| (item.key(), at)).collect();
    child.iter().map(|item| index.get(&item.key()).copied()).collect()
}

/// Removes the entries of `parent` whose path is in another list of `child`.
pub(crate) fn remove_conflicting_paths(parent: &mut Storage, child: &Storage) {
    let Storage { directories, files, links, .. } = child;
    parent.directories.retain(|item| !has(files, &item.path) && !has(links, &item.path));
    parent.files.retain(|item| !has(directories, &item.path) && !has(links, &item.path));
    parent.links.retain(|item| !has(directories, &item.path) && !has(files, &item.path));
}

/// Removes the arguments of `parent` that are in the opposite list of `child`.
pub(crate) fn remove_conflicting_arguments(parent: &mut KernelArguments, child: &KernelArguments) {
    parent.should_exist.retain(|argument| !has(&child.should_not_exist, argument));
    parent.should_not_exist.retain(|argument| !has(&child.should_exist, argument));
}

fn has<T: Item>(items: &[T], key: &str) -> bool {
    items.iter().any(|item| item.key() == key)
}

#[cfg(test)]
mod tests;
