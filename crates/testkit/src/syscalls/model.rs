//! A file system that promises no more than it must.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use anyhow::Context as _;

use super::Call;
use crate::vm::{Entry, Tree};

/// The name of a file, link or directory in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// A file or directory with this number.
    Inode(usize),
    /// A link, which never changes.
    Link(PathBuf),
}

/// A file or directory: contents and mode in memory, and those that survive a power cut.
#[derive(Clone, Debug)]
struct Inode {
    live: Entry,
    durable: Entry,
}

/// A change of a directory that was not synced.
#[derive(Clone, Debug)]
struct Pending {
    directory: String,
    /// Names that disappear and appear, at once.
    changes: Vec<(String, Option<Node>)>,
}

/// The files of a machine while a program changes them.
#[derive(Clone, Debug)]
pub struct Model {
    inodes: Vec<Inode>,
    live: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
    pending: Vec<Pending>,
    /// Owner of new files: that of the files before.
    owner: (u32, u32),
}

impl Model {
    /// Starts with files that are all durable.
    #[must_use]
    pub fn new(tree: &Tree) -> Self {
        let mut inodes = Vec::new();
        let mut node = |entry: &Entry| match entry {
            Entry::File { .. } | Entry::Directory { .. } => {
                inodes.push(Inode { live: entry.clone(), durable: entry.clone() });
                Node::Inode(inodes.len() - 1)
            }
            Entry::Link(target) => Node::Link(target.clone()),
        };
        let live: BTreeMap<String, Node> =
            tree.entries.iter().map(|(path, entry)| (path.clone(), node(entry))).collect();
        let owner = tree.entries.values().find_map(|entry| match entry {
            Entry::File { owner, .. } | Entry::Directory { owner, .. } => Some(*owner),
            Entry::Link(_) => None,
        });
        let owner = owner.unwrap_or_default();
        Self { inodes, durable: live.clone(), live, pending: Vec::new(), owner }
    }

    /// Executes a call.
    pub fn execute(&mut self, call: &Call) -> anyhow::Result<()> {
        match call {
            Call::Create(path) => self.create(path),
            Call::Write(path, bytes) => self.file(path)?.extend(bytes),
            Call::Truncate(path, length) => self.file(path)?.resize(*length, 0),
            Call::Mode(path, mode) => self.set_mode(path, *mode)?,
            Call::Sync(path) => self.sync(path),
            Call::Rename(from, to) => {
                let node = self.live.get(from).with_context(|| format!("{from} is not there"))?;
                let changes = vec![(from.clone(), None), (to.clone(), Some(node.clone()))];
                if parent(from) == parent(to) {
                    self.change(changes);
                } else {
                    for change in changes {
                        self.change(vec![change]);
                    }
                }
            }
            Call::Remove(path) => self.change(vec![(path.clone(), None)]),
            Call::Link(target, path) => {
                self.change(vec![(path.clone(), Some(Node::Link(PathBuf::from(target))))]);
            }
            Call::Directory(path) => {
                self.add(path, Entry::Directory { mode: 0o40_755, owner: self.owner });
            }
        }
        Ok(())
    }

    /// Returns the files as the program sees them.
    #[must_use]
    pub fn live(&self) -> Tree {
        self.tree(&self.live, |inode| inode.live.clone())
    }

    /// Returns files as a power cut leaves them: each change that is not durable is there or not.
    #[must_use]
    pub fn cut(&self, random: &mut fastrand::Rng) -> Tree {
        let share = random.f32();
        let mut names = self.durable.clone();
        for pending in &self.pending {
            let has_directory =
                pending.directory.is_empty() || names.contains_key(&pending.directory);
            if has_directory && random.f32() < share {
                apply(&mut names, &pending.changes);
            }
        }
        self.tree(&names, |inode| {
            if random.f32() < share { inode.live.clone() } else { inode.durable.clone() }
        })
    }

    /// Returns files as a power cut leaves them that loses everything that is not durable.
    #[must_use]
    pub fn worst_cut(&self) -> Tree {
        self.tree(&self.durable, |inode| inode.durable.clone())
    }

    fn tree(&self, names: &BTreeMap<String, Node>, mut pick: impl FnMut(&Inode) -> Entry) -> Tree {
        let entry = |node: &Node| match node {
            Node::Inode(number) => self.inodes.get(*number).map(&mut pick),
            Node::Link(target) => Some(Entry::Link(target.clone())),
        };
        let mut entry = entry;
        let found = names.iter().filter_map(|(path, node)| Some((path.clone(), entry(node)?)));
        Tree { entries: found.collect() }
    }

    fn create(&mut self, path: &str) {
        if self.live.contains_key(path) {
            return;
        }
        // Before its first sync, a file may be empty and have the mode that it was created with.
        self.add(path, Entry::File { mode: 0o100_600, owner: self.owner, bytes: Arc::default() });
    }

    /// Adds a file or directory. Its durable state is the one that it was created with.
    fn add(&mut self, path: &str, entry: Entry) {
        self.inodes.push(Inode { live: entry.clone(), durable: entry });
        let node = Node::Inode(self.inodes.len() - 1);
        self.change(vec![(path.to_owned(), Some(node))]);
    }

    fn change(&mut self, changes: Vec<(String, Option<Node>)>) {
        apply(&mut self.live, &changes);
        let directory = changes.first().map_or("", |(path, _)| parent(path)).to_owned();
        self.pending.push(Pending { directory, changes });
    }

    fn sync(&mut self, path: &str) {
        if let Some(Node::Inode(number)) = self.live.get(path)
            && let Some(inode) = self.inodes.get_mut(*number)
        {
            inode.durable = inode.live.clone();
        }
        let (synced, rest): (Vec<Pending>, _) = std::mem::take(&mut self.pending)
            .into_iter()
            .partition(|pending| pending.directory == path);
        self.pending = rest;
        for pending in synced {
            apply(&mut self.durable, &pending.changes);
        }
    }

    fn file(&mut self, path: &str) -> anyhow::Result<&mut Vec<u8>> {
        match self.inode(path)? {
            Entry::File { bytes, .. } => Ok(Arc::make_mut(bytes)),
            Entry::Link(_) | Entry::Directory { .. } => anyhow::bail!("{path} is no file"),
        }
    }

    fn set_mode(&mut self, path: &str, new: u32) -> anyhow::Result<()> {
        match self.inode(path)? {
            Entry::File { mode, .. } => *mode = 0o100_000 | new,
            Entry::Directory { mode, .. } => *mode = 0o40_000 | new,
            Entry::Link(_) => {}
        }
        Ok(())
    }

    fn inode(&mut self, path: &str) -> anyhow::Result<&mut Entry> {
        let Some(Node::Inode(number)) = self.live.get(path) else {
            anyhow::bail!("{path} is no file or directory");
        };
        let inode = self.inodes.get_mut(*number).context("every file has a number")?;
        Ok(&mut inode.live)
    }
}

fn apply(names: &mut BTreeMap<String, Node>, changes: &[(String, Option<Node>)]) {
    for (path, node) in changes {
        match node {
            Some(node) => names.insert(path.clone(), node.clone()),
            None => names.remove(path),
        };
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tree: &Tree, path: &str) -> Option<String> {
        tree.bytes(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns all contents of `/a` that a power cut can leave.
    fn states(calls: &[Call]) -> Vec<Option<String>> {
        let old = Entry::File { mode: 0o100_644, owner: (0, 0), bytes: Arc::new(b"old".to_vec()) };
        let tree = Tree { entries: [("/a".to_owned(), old)].into() };
        let mut model = Model::new(&tree);
        for call in calls {
            model.execute(call).unwrap();
        }
        let mut random = fastrand::Rng::with_seed(1);
        let mut found: Vec<_> = (0..200).map(|_| text(&model.cut(&mut random), "/a")).collect();
        found.push(text(&model.worst_cut(), "/a"));
        found.sort();
        found.dedup();
        found
    }

    #[test]
    fn a_rename_needs_a_sync_of_the_file_before_and_of_the_directory_after() {
        let new = || "/b".to_owned();
        let write = [Call::Create(new()), Call::Write(new(), b"new".to_vec())];
        let rename = [Call::Rename(new(), "/a".to_owned())];
        let synced = [write.as_slice(), &[Call::Sync(new())]].concat();
        let some = |words: &[&str]| -> Vec<Option<String>> {
            words.iter().map(|word| Some((*word).to_owned())).collect()
        };
        assert_eq!(states(&[write.as_slice(), &rename].concat()), some(&["", "new", "old"]));
        let renamed = [synced.as_slice(), &rename].concat();
        assert_eq!(states(&renamed), some(&["new", "old"]));
        let durable = [renamed.as_slice(), &[Call::Sync(String::new())]].concat();
        assert_eq!(states(&durable), some(&["new"]));
    }
}
