//! Checks of the fields of a MachineConfig beside its Ignition config.

use mco_api::{MachineConfig, label, name::RENDERED_PREFIX};

use super::{Fault, FieldPath, Manifest, Object, SpannedValue, role, suggest, value::Value};
use crate::render::EXTENSIONS;

const FIELDS: [&str; 7] = [
    "baseOSExtensionsContainerImage",
    "config",
    "extensions",
    "fips",
    "kernelArguments",
    "kernelType",
    "osImageURL",
];

const KERNELS: [&str; 3] = ["default", "realtime", "64k-pages"];

/// Adds the faults of the fields of `spec` and of the labels.
pub(super) fn check(manifest: &Manifest<MachineConfig>, faults: &mut Vec<Fault>) {
    let object = &manifest.object;
    unknown_fields(object, faults);
    kernel_type(manifest, faults);
    extensions(manifest, faults);
    images(manifest, faults);
    if role(&manifest.value).is_none() && !object.name.starts_with(RENDERED_PREFIX) {
        let fault = Fault::warning("NoRole", format!("{} has no role label", object.label()));
        let fault = fault.hint(format!("add the label {}: worker", label::ROLE));
        faults.push(object.fault_at(&FieldPath::of("metadata.labels"), fault));
    }
}

fn unknown_fields(object: &Object, faults: &mut Vec<Fault>) {
    let Some(Value::Map(entries)) = object.root.get("spec").map(|spec| &spec.value) else {
        return;
    };
    for entry in entries.iter().filter(|entry| !FIELDS.contains(&entry.key.as_str())) {
        let message = format!("unknown field {:?} is ignored", entry.key);
        let mut fault = Fault::warning("UnknownField", message);
        fault.hint = suggest::closest(&entry.key, FIELDS).map(|m| format!("did you mean {m}?"));
        let path = FieldPath::of("spec").member(&entry.key);
        faults.push(object.fault_on(entry.key_at, &path, fault));
    }
}

fn kernel_type(manifest: &Manifest<MachineConfig>, faults: &mut Vec<Fault>) {
    let kernel = manifest.value.spec.kernel_type.as_str();
    if !kernel.is_empty() && !KERNELS.contains(&kernel) {
        let fault = Fault::error("InvalidKernelType", format!("unknown kernel type {kernel:?}"));
        let fault = fault.hint(format!("use one of {}", KERNELS.join(", ")));
        faults.push(manifest.object.fault_at(&FieldPath::of("spec.kernelType"), fault));
    }
}

fn extensions(manifest: &Manifest<MachineConfig>, faults: &mut Vec<Fault>) {
    let path = FieldPath::of("spec.extensions");
    for (index, extension) in manifest.value.spec.extensions.iter().enumerate() {
        if EXTENSIONS.contains(&extension.as_str()) {
            continue;
        }
        let fault = Fault::error("UnknownExtension", format!("unknown extension {extension:?}"));
        let fault = fault.hint(match suggest::closest(extension, EXTENSIONS) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("use one of {}", EXTENSIONS.join(", ")),
        });
        faults.push(manifest.object.fault_at(&path.index(index), fault));
    }
}

fn images(manifest: &Manifest<MachineConfig>, faults: &mut Vec<Fault>) {
    for member in ["osImageURL", "baseOSExtensionsContainerImage"] {
        let path = FieldPath::of("spec").member(member);
        let image =
            manifest.object.root.find(&path).and_then(SpannedValue::as_str).unwrap_or_default();
        if !image.is_empty() && !image.contains("@sha256:") {
            let message = format!("{member} names an image by tag, which can change");
            let fault = Fault::warning("ImageByTag", message);
            let fault = fault.hint("name the image by digest: NAME@sha256:…");
            faults.push(manifest.object.fault_at(&path, fault));
        }
    }
}
