//! Conversion within 3.x to the next older version.

use super::{ConvertError, UnsupportedFeature};
use crate::{
    config::{Config, Luks, Resource},
    object::Field as _,
    report::Path,
    spec::Spec,
    validate,
};

/// Mode bits beyond read, write and execute.
const SPECIAL_BITS: i64 = 0o7000;

/// Converts `config` to `spec` from the version after it.
pub(super) fn convert_to(config: &mut Config, spec: Spec) -> Result<(), ConvertError> {
    match spec {
        Spec::V3_4 => to_3_4(config)?,
        Spec::V3_3 => to_3_3(config)?,
        Spec::V3_2 => to_3_2(config)?,
        Spec::V3_1 => to_3_1(config)?,
        Spec::V3_0 | Spec::V3_5 => {}
    }
    config.ignition.version = spec.to_string();
    let report = validate::validate_for(spec, config);
    if report.is_fatal() { Err(ConvertError::InvalidResult(report)) } else { Ok(()) }
}

/// Returns the error for the unsupported feature at `path`.
pub(super) fn refuse<T>(feature: UnsupportedFeature, path: Path) -> Result<T, ConvertError> {
    Err(ConvertError::Unsupported { feature, path })
}

fn luks_path(at: usize) -> Path {
    Path::default().member("storage").member("luks").index(at)
}

fn to_3_4(config: &mut Config) -> Result<(), ConvertError> {
    for (at, luks) in config.storage.luks.iter_mut().enumerate() {
        // The reference intends to reject this and checks the wrong member.
        if luks.cex.enabled == Some(true) {
            return refuse(UnsupportedFeature::Cex, luks_path(at).member("cex").member("enabled"));
        }
        luks.cex.enabled = None;
        for tang in &mut luks.clevis.tang {
            // Compat: an empty advertisement has no meaning, and the reference does not write it.
            tang.advertisement.take_if(|text| text.is_empty());
        }
    }
    Ok(())
}

fn to_3_3(config: &Config) -> Result<(), ConvertError> {
    let root = Path::default();
    let ignition = root.member("ignition");
    resources(&config.ignition.config.merge, &ignition.member("config").member("merge"))?;
    resource(&config.ignition.config.replace, || ignition.member("config").member("replace"))?;
    let authorities = &config.ignition.security.tls.certificate_authorities;
    let tls = ignition.member("security").member("tls");
    resources(authorities, &tls.member("certificateAuthorities"))?;

    let storage = root.member("storage");
    for (at, directory) in config.storage.directories.iter().enumerate() {
        mode(directory.mode, || storage.member("directories").index(at))?;
    }
    for (at, file) in config.storage.files.iter().enumerate() {
        let path = || storage.member("files").index(at);
        mode(file.mode, path)?;
        if !file.append.is_empty() {
            resources(&file.append, &path().member("append"))?;
        }
        resource(&file.contents, || path().member("contents"))?;
    }
    config.storage.luks.iter().enumerate().try_for_each(|(at, luks)| luks_to_3_3(luks, at))
}

fn luks_to_3_3(luks: &Luks, at: usize) -> Result<(), ConvertError> {
    if luks.discard == Some(true) {
        return refuse(
            UnsupportedFeature::Since3_4("luks discard is"),
            luks_path(at).member("discard"),
        );
    }
    if !luks.open_options.is_empty() {
        return refuse(
            UnsupportedFeature::Since3_4("luks openOptions is"),
            luks_path(at).member("openOptions"),
        );
    }
    let offline = |advertisement: &Option<String>| {
        advertisement.as_ref().is_some_and(|text| !text.is_empty())
    };
    if let Some(server) = luks.clevis.tang.iter().position(|tang| offline(&tang.advertisement)) {
        let tang = luks_path(at).member("clevis").member("tang").index(server);
        let feature = UnsupportedFeature::Since3_4("tang offline provisioning is");
        return refuse(feature, tang.member("advertisement"));
    }
    resource(&luks.key_file, || luks_path(at).member("keyFile"))
}

fn mode(mode: Option<i64>, path: impl Fn() -> Path) -> Result<(), ConvertError> {
    if mode.is_some_and(|mode| mode & SPECIAL_BITS != 0) {
        return refuse(
            UnsupportedFeature::Since3_4("special mode bits are"),
            path().member("mode"),
        );
    }
    Ok(())
}

fn resources(resources: &[Resource], path: &Path) -> Result<(), ConvertError> {
    resources.iter().enumerate().try_for_each(|(at, it)| resource(it, || path.index(at)))
}

fn resource(resource: &Resource, path: impl Fn() -> Path) -> Result<(), ConvertError> {
    let source = resource.source.as_deref().unwrap_or_default();
    let scheme = source.split_once(':').map(|(scheme, _)| scheme);
    if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("arn")) {
        return refuse(
            UnsupportedFeature::Since3_4("arn: scheme for s3 is"),
            path().member("source"),
        );
    }
    Ok(())
}

fn to_3_2(config: &mut Config) -> Result<(), ConvertError> {
    if !config.kernel_arguments.is_empty() {
        let feature = UnsupportedFeature::On { what: "KernelArguments is", version: "3.2" };
        return refuse(feature, Path::default().member("kernelArguments"));
    }
    // These members were not optional yet, so they are set if their object is.
    for luks in &mut config.storage.luks {
        let custom = &mut luks.clevis.custom;
        if !custom.is_empty() {
            custom.config.get_or_insert_default();
            custom.pin.get_or_insert_default();
        }
    }
    Ok(())
}

fn to_3_1(config: &mut Config) -> Result<(), ConvertError> {
    refuse_luks_and_absent_users(config, "3.1")?;
    for (at, disk) in config.storage.disks.iter().enumerate() {
        if let Some(number) = disk.partitions.iter().position(|it| it.resize == Some(true)) {
            return refuse(
                UnsupportedFeature::resize("3.1"),
                partition_path(at, number).member("resize"),
            );
        }
    }
    // The remaining values are the defaults.
    config.passwd.users.iter_mut().for_each(|user| user.should_exist = None);
    config.passwd.groups.iter_mut().for_each(|group| group.should_exist = None);
    for disk in &mut config.storage.disks {
        disk.partitions.iter_mut().for_each(|partition| partition.resize = None);
    }
    Ok(())
}

/// Rejects encrypted volumes, and users and groups that must not exist, on the way to `version`.
pub(super) fn refuse_luks_and_absent_users(
    config: &Config,
    version: &'static str,
) -> Result<(), ConvertError> {
    let root = Path::default();
    if !config.storage.luks.is_empty() {
        let feature = UnsupportedFeature::On { what: "LUKS is", version };
        return refuse(feature, root.member("storage").member("luks"));
    }
    let passwd = root.member("passwd");
    if let Some(at) = config.passwd.users.iter().position(|it| it.should_exist == Some(false)) {
        let feature = UnsupportedFeature::On { what: "ShouldExist in Passwd.Users is", version };
        return refuse(feature, passwd.member("users").index(at).member("shouldExist"));
    }
    if let Some(at) = config.passwd.groups.iter().position(|it| it.should_exist == Some(false)) {
        let feature = UnsupportedFeature::On { what: "ShouldExist in Passwd.Groups is", version };
        return refuse(feature, passwd.member("groups").index(at).member("shouldExist"));
    }
    Ok(())
}

/// Returns the path of a partition.
pub(super) fn partition_path(disk: usize, number: usize) -> Path {
    let disk = Path::default().member("storage").member("disks").index(disk);
    disk.member("partitions").index(number)
}

impl UnsupportedFeature {
    /// Returns the feature of resizing partitions.
    pub(super) fn resize(version: &'static str) -> Self {
        Self::On { what: "Resize in Storage.Disks.Partitions is", version }
    }
}
