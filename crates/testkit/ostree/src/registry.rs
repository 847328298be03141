//! The registry of images and packages: an ostree repository beside the machine.

use anyhow::{Context as _, bail};
use ostree::{
    Repo, gio,
    glib::{self, prelude::ToVariant as _},
};

use crate::power;

const PATH: &str = "/run/registry";
const DIGEST: &str = "@sha256:";

/// Prefixes of an image, as its transport and its verification.
pub(crate) const REGISTRY: &str = "ostree-unverified-registry:";
const DOCKER: &str = "ostree-unverified-image:docker://";

fn open() -> anyhow::Result<Repo> {
    let registry = Repo::new(&gio::File::for_path(PATH));
    registry.open(gio::Cancellable::NONE).context("error pinging container registry")?;
    Ok(registry)
}

/// Returns the name and the digest of an image reference, without its transport.
pub(crate) fn image(reference: &str) -> anyhow::Result<(&str, &str)> {
    let name = [REGISTRY, DOCKER].iter().find_map(|prefix| reference.strip_prefix(prefix));
    let Some(name) = name else { bail!("Invalid image reference: {reference}") };
    let Some((name, digest)) = name.split_once(DIGEST) else {
        bail!("reading manifest latest in {name}: manifest unknown")
    };
    Ok((name, digest))
}

/// Pulls an image into the machine's repository; returns its commit.
pub(crate) fn pull_image(repo: &Repo, reference: &str) -> anyhow::Result<String> {
    let (name, digest) = image(reference)?;
    let missing = || format!("reading manifest sha256:{digest} in {name}: manifest unknown");
    let found = open()?.resolve_rev(&format!("image/{name}/{digest}"), true)?;
    let commit = found.with_context(missing)?;
    pull(repo, &commit)?;
    power::moment("an image was pulled");
    Ok(commit.into())
}

/// Pulls a package into the machine's repository; returns its commit.
pub(crate) fn pull_package(repo: &Repo, name: &str) -> anyhow::Result<String> {
    let found = open()?.resolve_rev(&format!("package/{name}"), true)?;
    let commit = found.with_context(|| format!("Packages not found: {name}"))?;
    pull(repo, &commit)?;
    Ok(commit.into())
}

fn pull(repo: &Repo, commit: &str) -> anyhow::Result<()> {
    let options = glib::VariantDict::new(None);
    options.insert_value("refs", &vec![commit].to_variant());
    options.insert_value("gpg-verify", &false.to_variant());
    options.insert_value("gpg-verify-summary", &false.to_variant());
    let url = format!("file://{PATH}");
    repo.pull_with_options(&url, &options.end(), None, gio::Cancellable::NONE)
        .with_context(|| format!("failed to pull {commit}"))
}
