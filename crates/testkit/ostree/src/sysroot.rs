//! The sysroot of the machine: its deployments, their origins, and how new ones are staged.

use anyhow::{Context as _, ensure};
use ostree::{
    Deployment, KernelArgs, Repo, Sysroot, gio,
    glib::{self, KeyFile},
};

use crate::{layers, power};

/// Refs that keep the images of layered commits.
const BASES: &str = "rpmostree/base";

/// The sysroot of the running machine.
///
/// libostree recognizes its deployments by their address: `Clone::clone` gives another reference to
/// one, the method `clone` that hides it a copy.
pub(crate) struct System {
    pub(crate) sysroot: Sysroot,
    pub(crate) repo: Repo,
    pub(crate) booted: Deployment,
}

/// The request behind a deployment: its image and the changes to the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) image: String,
    pub(crate) packages: Vec<String>,
    pub(crate) removals: Vec<String>,
}

impl System {
    /// Opens the sysroot of the machine that this program runs on, and locks it.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let sysroot = Sysroot::new_default();
        sysroot.load(gio::Cancellable::NONE).context("failed to load the sysroot")?;
        sysroot.lock().context("failed to lock the sysroot")?;
        // Loads what another process changed while this one waited for the lock.
        sysroot.load(gio::Cancellable::NONE).context("failed to load the sysroot")?;
        let booted = sysroot.booted_deployment();
        let booted = booted.context("This system was not booted via libostree.")?;
        Ok(Self { repo: sysroot.repo(), booted, sysroot })
    }

    /// Returns the deployment that the next change is based on: the one that boots next.
    pub(crate) fn pending(&self) -> Deployment {
        self.sysroot.deployments().into_iter().next().unwrap_or_else(|| Clone::clone(&self.booted))
    }

    /// Stages a deployment of a commit for the next boot. `/etc` comes from the booted one when the
    /// machine shuts down.
    pub(crate) fn stage(
        &self,
        commit: &str,
        origin: &Origin,
        arguments: &KernelArgs,
    ) -> anyhow::Result<()> {
        let arguments = arguments.to_strv();
        let arguments: Vec<&str> = arguments.iter().map(glib::GString::as_str).collect();
        let os = self.booted.osname();
        let merge = self.sysroot.merge_deployment(Some(&os));
        self.sysroot
            .stage_tree(
                Some(&os),
                commit,
                Some(&origin.to_key_file()),
                merge.as_ref(),
                &arguments,
                gio::Cancellable::NONE,
            )
            .context("failed to stage a deployment")?;
        power::moment("a deployment was staged");
        self.clean()
    }

    /// Replaces the list of deployments.
    pub(crate) fn write(&self, deployments: &[Deployment]) -> anyhow::Result<()> {
        power::moment("before the deployments are written");
        self.sysroot
            .write_deployments(deployments, gio::Cancellable::NONE)
            .context("failed to write the deployments")?;
        power::moment("the deployments were written");
        self.clean()
    }

    /// Removes everything that no deployment needs.
    pub(crate) fn clean(&self) -> anyhow::Result<()> {
        let none = gio::Cancellable::NONE;
        for name in self.repo.list_refs(Some(BASES), none)?.into_keys() {
            let whole = if name.starts_with(BASES) { name } else { format!("{BASES}/{name}") };
            self.repo.set_ref_immediate(None, &whole, None, none)?;
        }
        for (number, deployment) in self.sysroot.deployments().iter().enumerate() {
            let base = layers::base(&self.repo, &deployment.csum())?;
            self.repo.set_ref_immediate(None, &format!("{BASES}/{number}"), Some(&base), none)?;
        }
        self.sysroot.cleanup(none).context("failed to remove old deployments")
    }
}

/// Returns the kernel arguments of a deployment, as one line.
pub(crate) fn options(deployment: &Deployment) -> anyhow::Result<String> {
    let options = deployment.bootconfig().and_then(|config| config.get("options"));
    options.map(Into::into).context("a deployment has no kernel arguments")
}

impl Origin {
    /// Returns the origin of a deployment.
    pub(crate) fn of(deployment: &Deployment) -> anyhow::Result<Self> {
        let file = deployment.origin().context("No origin known for deployment")?;
        let list = |group: &str, key: &str| {
            let found = file.string_list(group, key).unwrap_or_default();
            found.iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        let image = file.string("origin", "container-image-reference");
        let image = image.context("the origin has no container-image-reference")?.into();
        Ok(Self {
            image,
            packages: list("packages", "requested"),
            removals: list("overrides", "remove"),
        })
    }

    fn to_key_file(&self) -> KeyFile {
        let file = KeyFile::new();
        file.set_string("origin", "container-image-reference", &self.image);
        for (group, key, words) in
            [("packages", "requested", &self.packages), ("overrides", "remove", &self.removals)]
        {
            if !words.is_empty() {
                file.set_value(group, key, &format!("{};", words.join(";")));
            }
        }
        file
    }

    /// Requests more packages and drops requests.
    pub(crate) fn change(&mut self, install: &[String], drop: &[String]) -> anyhow::Result<()> {
        for name in drop {
            let before = self.packages.len();
            self.packages.retain(|package| package != name);
            ensure!(
                self.packages.len() < before,
                "Package/capability '{name}' is not currently requested"
            );
        }
        for name in install {
            ensure!(
                !self.packages.contains(name),
                "Package/capability '{name}' is already requested"
            );
            self.packages.push(name.clone());
        }
        // As the real origin has them.
        self.packages.sort();
        Ok(())
    }
}
