//! The members of the status about boot images, by platform.

use mco_api::{
    annotation::Topology,
    controller_config::PlatformType,
    machine_configuration::{
        MachineConfigurationSpec, MachineConfigurationStatus,
        boot_images::{
            AutomaticBootImageVersion, BootImageSkewEnforcementStatus, MachineManager,
            MachineManagerSelection, ManagedBootImages, ManualBootImageVersion, SelectionMode,
        },
    },
    openshift::{ClusterVersion, FeatureGate, Infrastructure},
};

const MACHINE_API: &str = "machine.openshift.io";
const MACHINE_SETS: &str = "machinesets";
const CONTROL_PLANE_MACHINE_SETS: &str = "controlplanemachinesets";

/// Cloud of Azure whose boot images cannot be updated.
const AZURE_STACK: &str = "AzureStackCloud";

/// Version if the cluster does not know the one that it was installed with.
const UNKNOWN_VERSION: &str = "0.0.0";

/// The source of the OS images of machines on bare metal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// The Provisioning object names an image to download, or cannot be read.
    Legacy,
    /// The release has the image.
    Release,
}

/// Facts about an OpenShift cluster on which its boot images depend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Platform of the cluster.
    pub platform: PlatformType,
    /// Whether the platform is a cloud of Azure without updates of boot images.
    pub is_azure_stack: bool,
    /// Topology of the control plane.
    pub topology: Option<Topology>,
    /// Version that the cluster was installed with.
    pub install_version: String,
    /// Source of OS images on bare metal.
    pub provisioning: Provisioning,
    /// Whether the feature `ManagedBootImagesCPMS` is enabled.
    pub has_control_plane: bool,
    /// Whether the feature `BootImageSkewEnforcement` is enabled.
    pub has_skew_enforcement: bool,
}

impl Facts {
    /// Collects the facts from the objects of the cluster. Without a FeatureGate, both features are
    /// enabled, as they are in new clusters.
    #[must_use]
    pub fn new(
        infrastructure: &Infrastructure,
        version: Option<&ClusterVersion>,
        gates: Option<&FeatureGate>,
        provisioning: Provisioning,
    ) -> Self {
        let status = &infrastructure.status;
        let platform = status.platform_status.as_ref();
        let azure = platform.and_then(|platform| platform.azure.as_ref());
        Self {
            platform: platform.map_or(&status.platform, |platform| &platform.kind).clone(),
            is_azure_stack: azure.is_some_and(|azure| azure.cloud_name == AZURE_STACK),
            topology: status.control_plane_topology.clone(),
            install_version: install_version(version),
            provisioning,
            has_control_plane: gates.is_none_or(|it| is_enabled(it, "ManagedBootImagesCPMS")),
            has_skew_enforcement: gates.is_none_or(|it| is_enabled(it, "BootImageSkewEnforcement")),
        }
    }

    /// Returns true if the boot images of MachineSets can be updated.
    #[must_use]
    pub fn has_managed_boot_images(&self) -> bool {
        let supported = matches!(
            self.platform,
            PlatformType::Aws | PlatformType::Gcp | PlatformType::VSphere | PlatformType::Azure
        );
        supported && !self.is_azure_stack
    }

    /// Returns true if the boot images of `ControlPlaneMachineSets` can be updated.
    #[must_use]
    pub fn has_control_plane_boot_images(&self) -> bool {
        let supported =
            matches!(self.platform, PlatformType::Aws | PlatformType::Gcp | PlatformType::Azure);
        self.has_control_plane && supported && self.has_managed_boot_images()
    }
}

/// Returns true if the newest version in a FeatureGate has the feature.
#[must_use]
pub fn is_enabled(gates: &FeatureGate, feature: &str) -> bool {
    let newest = gates.status.feature_gates.first();
    newest.is_some_and(|version| version.enabled.iter().any(|it| it.name == feature))
}

/// Returns the oldest version that was completed, as `x.y.z`.
fn install_version(version: Option<&ClusterVersion>) -> String {
    let history = version.iter().flat_map(|version| version.status.history.iter().rev());
    let mut completed = history.filter(|release| release.state == "Completed");
    let found = completed.next().and_then(|release| {
        let plain = release.version.split(['-', '+']).next()?;
        let numbers: Vec<&str> = plain.split('.').collect();
        let is_number = |text: &&str| text.parse::<u32>().is_ok();
        (numbers.len() == 3 && numbers.iter().all(is_number)).then(|| plain.to_owned())
    });
    found.unwrap_or_else(|| UNKNOWN_VERSION.to_owned())
}

/// Returns the objects whose boot images the cluster updates; `None` on platforms without support.
///
/// An empty list is the administrator's decision against all updates.
pub(super) fn managed(spec: &MachineConfigurationSpec, facts: &Facts) -> Option<ManagedBootImages> {
    if !facts.has_managed_boot_images() {
        return None;
    }
    if spec.managed_boot_images.as_ref().is_some_and(|it| it.machine_managers.is_empty()) {
        return spec.managed_boot_images.clone();
    }
    let entry = |resource: &str, default: SelectionMode| {
        let own = spec.managed_boot_images.as_ref();
        own.and_then(|own| manager(own, resource)).cloned().unwrap_or_else(|| MachineManager {
            resource: resource.to_owned(),
            api_group: MACHINE_API.to_owned(),
            selection: MachineManagerSelection { mode: default, partial: None },
        })
    };
    let mut machine_managers = vec![entry(MACHINE_SETS, SelectionMode::All)];
    if facts.has_control_plane_boot_images() {
        machine_managers.push(entry(CONTROL_PLANE_MACHINE_SETS, SelectionMode::None));
    }
    Some(ManagedBootImages { machine_managers })
}

/// Returns true if a default, and not the administrator, starts the updates of all MachineSets.
pub(super) fn opts_in(
    spec: &MachineConfigurationSpec,
    stored: Option<&ManagedBootImages>,
    wanted: Option<&ManagedBootImages>,
) -> bool {
    let mode =
        |of: Option<&ManagedBootImages>| Some(manager(of?, MACHINE_SETS)?.selection.mode.clone());
    let is_own =
        spec.managed_boot_images.as_ref().is_some_and(|it| manager(it, MACHINE_SETS).is_some());
    !is_own
        && mode(wanted) == Some(SelectionMode::All)
        && matches!(mode(stored), None | Some(SelectionMode::None))
}

/// Returns the limit on the age of boot images, as it is enforced: the first rule that applies.
pub(super) fn skew(
    spec: &MachineConfigurationSpec,
    stored: &MachineConfigurationStatus,
    managed: Option<&ManagedBootImages>,
    facts: &Facts,
) -> Option<BootImageSkewEnforcementStatus> {
    if !facts.has_skew_enforcement {
        return None;
    }
    let of_mode = |mode: &str| BootImageSkewEnforcementStatus {
        mode: mode.to_owned(),
        ..BootImageSkewEnforcementStatus::default()
    };
    if let Some(own) = &spec.boot_image_skew_enforcement {
        let manual = own.manual.clone();
        return Some(BootImageSkewEnforcementStatus { manual, ..of_mode(&own.mode) });
    }
    let is_metal = facts.platform == PlatformType::BareMetal;
    if is_metal && facts.provisioning == Provisioning::Release {
        return Some(of_mode("None"));
    }
    if facts.topology == Some(Topology::SingleReplica) {
        return Some(of_mode("None"));
    }
    let machine_sets = managed.and_then(|it| manager(it, MACHINE_SETS));
    if machine_sets.is_some_and(|it| it.selection.mode == SelectionMode::All) {
        let stored = stored.boot_image_skew_enforcement_status.as_ref();
        if let Some(known) = stored.filter(|it| it.mode == "Automatic" && it.automatic.is_some()) {
            return Some(known.clone());
        }
        let automatic = AutomaticBootImageVersion {
            ocp_version: facts.install_version.clone(),
            ..AutomaticBootImageVersion::default()
        };
        let automatic = Some(automatic);
        return Some(BootImageSkewEnforcementStatus { automatic, ..of_mode("Automatic") });
    }
    let manual = ManualBootImageVersion {
        mode: "OCPVersion".to_owned(),
        ocp_version: facts.install_version.clone(),
        ..ManualBootImageVersion::default()
    };
    Some(BootImageSkewEnforcementStatus { manual: Some(manual), ..of_mode("Manual") })
}

fn manager<'m>(images: &'m ManagedBootImages, resource: &str) -> Option<&'m MachineManager> {
    images.machine_managers.iter().find(|it| it.resource == resource && it.api_group == MACHINE_API)
}
