//! MachineConfig: one fragment of a machine's configuration, or a whole rendered config.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::{Column, Definition, kind};
use crate::raw_config::RawConfig;
use crate::wire::null_as_default;

kind! {
    /// A fragment of the configuration of a pool's machines: files, units, users, kernel arguments
    /// and the OS image. The controller merges all fragments that a pool selects into one rendered
    /// MachineConfig.
    pub struct MachineConfig {
        spec: MachineConfigSpec,
    }
    Definition {
        plural: "machineconfigs",
        short_names: &["mc"],
        required: &[],
        columns: &[
            Column::text(
                "GeneratedByController",
                r".metadata.annotations.machineconfiguration\.openshift\.io/generated-by-controller-version",
                "Build of the controller that generated this config; empty for a config made by hand.",
            ),
            Column::text(
                "IgnitionVersion",
                ".spec.config.ignition.version",
                "Version of the Ignition format that the config is written in.",
            ),
            Column::AGE,
        ],
        ..Definition::COMMON
    }
}

// Compat: all seven members are written, empty or not, and in this order, because the reference's
// own type does so (vendor openshift/api machineconfiguration/v1/types.go) and the hash in a
// rendered config's name covers it.
/// Configuration of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("required" = []))]
pub struct MachineConfigSpec {
    /// OS image of the machine. Leave empty to use the image of the cluster's release.
    #[serde(rename = "osImageURL", deserialize_with = "null_as_default")]
    pub os_image_url: String,
    /// Image with the extension packages that match the OS image.
    #[serde(rename = "baseOSExtensionsContainerImage", deserialize_with = "null_as_default")]
    pub base_os_extensions_container_image: String,
    /// Ignition config: files, systemd units and users. Spec 3.x, or 2.2 from older clusters.
    pub config: Option<RawConfig>,
    /// Arguments to append to the kernel command line, in this order.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("nullable" = true, "x-kubernetes-list-type" = "atomic"))]
    pub kernel_arguments: Vec<String>,
    /// Extensions to install, which are named sets of additional packages, such as `usbguard` or
    /// `ipsec`.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub extensions: Vec<String>,
    /// True if the machine runs in FIPS mode. FIPS mode can only be chosen at installation.
    #[serde(deserialize_with = "null_as_default")]
    pub fips: bool,
    /// Kernel to boot: `default`, `realtime`, or `64k-pages` (aarch64 only).
    #[serde(deserialize_with = "null_as_default")]
    pub kernel_type: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_member_is_written_in_the_reference_order() {
        let written = serde_json::to_string(&MachineConfigSpec::default()).expect("text");
        assert_eq!(
            written,
            r#"{"osImageURL":"","baseOSExtensionsContainerImage":"","config":null,"kernelArguments":[],"extensions":[],"fips":false,"kernelType":""}"#
        );
    }

    #[test]
    fn absent_and_null_members_deserialize_as_empty() {
        let nulls = json!({
            "metadata": {"name": "a"},
            "spec": {
                "osImageURL": null, "config": null, "kernelArguments": null,
                "extensions": null, "fips": null, "kernelType": null
            }
        });
        let without_spec = json!({"metadata": {"name": "a"}});
        let null_spec = json!({"metadata": {"name": "a"}, "spec": null});
        for object in [nulls, without_spec, null_spec] {
            let config: MachineConfig = serde_json::from_value(object).expect("lenient");
            assert_eq!(config.spec, MachineConfigSpec::default());
        }
    }

    #[test]
    fn members_of_the_wrong_type_are_rejected() {
        for spec in [
            json!({"kernelArguments": "a=b"}),
            json!({"fips": "yes"}),
            json!({"osImageURL": 3}),
            json!({"extensions": [1]}),
        ] {
            let refused = serde_json::from_value::<MachineConfigSpec>(spec.clone());
            assert!(refused.is_err(), "{spec}");
        }
    }

    #[test]
    fn the_ignition_config_keeps_its_text() {
        let text = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a"},"spec":{"config":{"ignition": {"version":"3.5.0"}}}}"#;
        let config: MachineConfig = serde_json::from_str(text).expect("a config");
        let ignition = config.spec.config.as_ref().map(RawConfig::get);
        assert_eq!(ignition, Some(r#"{"ignition": {"version":"3.5.0"}}"#));

        let written = serde_json::to_string(&config).expect("text");
        let start = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig","metadata":{"name":"a"},"spec":{"osImageURL":"""#;
        assert!(written.starts_with(start), "{written}");
    }
}
