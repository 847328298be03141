//! Layered commits: an image with packages installed and packages removed.

use anyhow::Context as _;
use ostree::{
    MutableTree, ObjectType, Repo, RepoFile, gio,
    glib::{self, prelude::*},
};

use crate::{power, registry, rpm::PACKAGES, sysroot::Origin};

/// Metadata of a layered commit, as rpm-ostree has it.
const LAYER: &str = "rpmostree.clientlayer";
const INSTALLED: &str = "rpmostree.packages";
const REMOVED: &str = "rpmostree.removed-base-packages";

/// A package that is removed from the image: name with version, name, epoch, version, release,
/// architecture.
type Nevra = (String, String, u64, String, String, String);

/// The layers of a commit.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    pub(crate) is_layered: bool,
    pub(crate) packages: Vec<String>,
    pub(crate) removals: Vec<Nevra>,
}

/// Returns the commit of an origin: that of its image, or a new one with its packages.
pub(crate) fn assemble(repo: &Repo, image: &str, origin: &Origin) -> anyhow::Result<String> {
    if origin.packages.is_empty() && origin.removals.is_empty() {
        return Ok(image.to_owned());
    }
    let none = gio::Cancellable::NONE;
    let tree = MutableTree::from_commit(repo, image)?;
    let mut packages = tree.clone();
    for name in PACKAGES.split('/') {
        packages = packages.lookup(name)?.1.context("the image has no packages")?;
    }
    for name in &origin.removals {
        let missing = || format!("Package/capability/path '{name}' not found in the base");
        // Loads the folder, too, which `remove` does not do.
        packages.lookup(name).with_context(missing)?;
        packages.remove(name, false).with_context(missing)?;
    }
    let mut commits = Vec::new();
    for name in &origin.packages {
        commits.push(registry::pull_package(repo, name)?);
    }
    power::moment("packages were pulled");
    repo.prepare_transaction(none)?;
    for commit in commits {
        let (root, _) = repo.read_commit(&commit, none)?;
        repo.write_directory_to_mtree(&root, &tree, None, none)?;
    }
    let root = repo.write_mtree(&tree, none)?;
    let root = root.downcast::<RepoFile>().ok().context("a tree has no root")?;
    let metadata = glib::VariantDict::new(None);
    metadata.insert(LAYER, true);
    metadata.insert_value(INSTALLED, &origin.packages.to_variant());
    let removals: Vec<glib::Variant> =
        origin.removals.iter().map(|name| nevra(name).to_variant()).collect();
    metadata.insert_value(REMOVED, &removals.to_variant());
    metadata.insert_value("version", &"1".to_variant());
    let metadata = metadata.end();
    let commit = repo.write_commit(Some(image), None, None, Some(&metadata), &root, none)?;
    repo.commit_transaction(none)?;
    power::moment("packages were installed");
    Ok(commit.into())
}

fn nevra(name: &str) -> Nevra {
    let whole = format!("{name}-1-1.x86_64");
    let text = str::to_owned;
    (whole, name.to_owned(), 0, text("1"), text("1"), text("x86_64"))
}

/// Returns the layers of a commit.
pub(crate) fn of(repo: &Repo, commit: &str) -> anyhow::Result<Layers> {
    let metadata = glib::VariantDict::new(Some(&load(repo, commit)?.child_value(0)));
    let is_layered = metadata.lookup(LAYER)?.unwrap_or(false);
    if !is_layered {
        return Ok(Layers::default());
    }
    let removals: Vec<glib::Variant> = metadata.lookup(REMOVED)?.unwrap_or_default();
    Ok(Layers {
        is_layered,
        packages: metadata.lookup(INSTALLED)?.unwrap_or_default(),
        removals: removals
            .iter()
            .filter_map(|it| it.as_variant().unwrap_or_else(|| it.clone()).get())
            .collect(),
    })
}

/// Returns the image below a commit, or the commit if it is the image.
pub(crate) fn base(repo: &Repo, commit: &str) -> anyhow::Result<String> {
    if !of(repo, commit)?.is_layered {
        return Ok(commit.to_owned());
    }
    let parent = ostree::commit_get_parent(&load(repo, commit)?);
    parent.map(Into::into).context("a layered commit has no parent")
}

/// Returns the commit object.
pub(crate) fn load(repo: &Repo, commit: &str) -> anyhow::Result<glib::Variant> {
    repo.load_variant(ObjectType::Commit, commit)
        .with_context(|| format!("failed to read the commit {commit}"))
}
