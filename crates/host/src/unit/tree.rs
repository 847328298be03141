//! The tree in which units are looked up and changed: that of a machine, or one that an update would
//! leave.

use std::{cell::RefCell, collections::BTreeMap};

use crate::root::{Root, RootError, joined};

/// Limit of links that may lead to one another.
const MAX_LINKS: usize = 40;

/// A tree with unit files and the links that enable them.
pub trait UnitTree {
    /// Reads a file, following links; none if it does not exist.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, RootError>;
    /// Returns the target of a link; none for anything else.
    fn read_link(&self, path: &str) -> Result<Option<String>, RootError>;
    /// Follows the links at a path to their end; none if the path does not exist.
    fn destination(&self, path: &str) -> Result<Option<String>, RootError>;
    /// Lists the names in a directory.
    fn list(&self, path: &str) -> Result<Vec<String>, RootError>;
    /// Returns true if the path leads to a directory.
    fn is_directory(&self, path: &str) -> Result<bool, RootError>;
    /// Returns true if there is anything at the path, such as a link to nothing.
    fn is_present(&self, path: &str) -> Result<bool, RootError>;
    /// Writes a link, replacing a file or link there.
    fn link(&self, target: &str, path: &str) -> Result<(), RootError>;
    /// Removes a file or link, if there is one.
    fn remove(&self, path: &str) -> Result<bool, RootError>;
    /// Removes a directory if it is empty.
    fn remove_empty_directory(&self, path: &str) -> Result<bool, RootError>;
}

impl UnitTree for Root {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, RootError> {
        self.read(path)
    }

    fn read_link(&self, path: &str) -> Result<Option<String>, RootError> {
        self.read_link(path)
    }

    fn destination(&self, path: &str) -> Result<Option<String>, RootError> {
        self.destination(path)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, RootError> {
        self.list(path)
    }

    fn is_directory(&self, path: &str) -> Result<bool, RootError> {
        Ok(self.directory(path)?.is_some())
    }

    fn is_present(&self, path: &str) -> Result<bool, RootError> {
        Ok(self.stat(path)?.is_some())
    }

    fn link(&self, target: &str, path: &str) -> Result<(), RootError> {
        self.link(target, path)
    }

    fn remove(&self, path: &str) -> Result<bool, RootError> {
        self.remove(path)
    }

    fn remove_empty_directory(&self, path: &str) -> Result<bool, RootError> {
        self.remove_empty_directory(path)
    }
}

/// The tree of a machine with changes that are not made.
pub(crate) struct PlannedTree<'r> {
    root: &'r Root,
    changes: RefCell<BTreeMap<String, Entry>>,
}

/// A changed path.
#[derive(Clone, Debug)]
enum Entry {
    Gone,
    File(Vec<u8>),
    Link(String),
}

impl<'r> PlannedTree<'r> {
    /// Returns the tree of a machine without a change.
    pub(crate) fn new(root: &'r Root) -> Self {
        Self { root, changes: RefCell::default() }
    }

    /// Writes a file, replacing what is there.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) {
        self.set(path, Entry::File(bytes.to_vec()));
    }

    fn set(&self, path: &str, entry: Entry) {
        self.changes.borrow_mut().insert(path.to_owned(), entry);
    }

    fn entry(&self, path: &str) -> Option<Entry> {
        self.changes.borrow().get(path).cloned()
    }
}

impl UnitTree for PlannedTree<'_> {
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>, RootError> {
        let Some(end) = self.destination(path)? else { return Ok(None) };
        match self.entry(&end) {
            Some(Entry::File(bytes)) => Ok(Some(bytes)),
            Some(Entry::Gone | Entry::Link(_)) => Ok(None),
            None => self.root.read(&end),
        }
    }

    fn read_link(&self, path: &str) -> Result<Option<String>, RootError> {
        match self.entry(path) {
            Some(Entry::Link(target)) => Ok(Some(target)),
            Some(Entry::Gone | Entry::File(_)) => Ok(None),
            None => self.root.read_link(path),
        }
    }

    fn destination(&self, path: &str) -> Result<Option<String>, RootError> {
        if !self.is_present(path)? {
            return Ok(None);
        }
        let mut at = path.to_owned();
        for _ in 0..MAX_LINKS {
            let Some(target) = self.read_link(&at)? else { break };
            at = joined(&at, &target);
        }
        Ok(Some(at))
    }

    fn list(&self, path: &str) -> Result<Vec<String>, RootError> {
        let mut names = self.root.list(path)?;
        for (changed, entry) in &*self.changes.borrow() {
            let below = changed.strip_prefix(path).and_then(|rest| rest.strip_prefix('/'));
            let Some(below) = below else { continue };
            let name = below.split('/').next().unwrap_or_default();
            let is_gone = matches!(entry, Entry::Gone);
            if is_gone && name == below {
                names.retain(|present| present != name);
            } else if !is_gone && !names.iter().any(|present| present == name) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn is_directory(&self, path: &str) -> Result<bool, RootError> {
        let Some(end) = self.destination(path)? else { return Ok(false) };
        match self.entry(&end) {
            Some(_) => Ok(false),
            None => Ok(self.root.directory(&end)?.is_some()),
        }
    }

    fn is_present(&self, path: &str) -> Result<bool, RootError> {
        match self.entry(path) {
            Some(Entry::Gone) => Ok(false),
            Some(Entry::File(_) | Entry::Link(_)) => Ok(true),
            None => Ok(self.root.stat(path)?.is_some()),
        }
    }

    fn link(&self, target: &str, path: &str) -> Result<(), RootError> {
        self.set(path, Entry::Link(target.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<bool, RootError> {
        let was_present = self.is_present(path)?;
        self.set(path, Entry::Gone);
        Ok(was_present)
    }

    fn remove_empty_directory(&self, _: &str) -> Result<bool, RootError> {
        Ok(true)
    }
}
