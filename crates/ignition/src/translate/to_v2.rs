//! From 3.2 down to 2.2.
//!
//! 2.2 puts every file on a named filesystem. A filesystem of 3.x with a path is named by that path,
//! one without by a number; what is on none is on `root`. 2.2 replaces existing files unless told
//! not to, and appends by another entry for the same path.

mod members;

use super::{
    ConvertError, Loss,
    down::{partition_path, refuse, refuse_volumes_and_absence},
};
use crate::{
    config::{Config, Resource},
    object::Field as _,
    report::Path,
    v2, validate,
};

/// The version as losses name it.
const VERSION: &str = "2.2";

/// What 2.2 would say in place of `config`, which is valid by the rules of 3.2.
pub(super) fn translate(config: Config) -> Result<v2::Config, ConvertError> {
    ignition(&config)?;
    refuse_volumes_and_absence(&config, VERSION)?;
    partitions(&config)?;
    filesystems_and_files(&config)?;
    let config = members::config(config);
    let report = validate::v2(v2::MARKER, &config);
    if report.is_fatal() {
        return Err(ConvertError::Outcome(report));
    }
    Ok(config)
}

fn lost<T>(what: &'static str, path: Path) -> Result<T, ConvertError> {
    refuse(Loss::On { what, version: VERSION }, path)
}

/// Refuses proxies, and compression and headers where 2.2 has none.
fn ignition(config: &Config) -> Result<(), ConvertError> {
    let ignition = Path::default().member("ignition");
    let sources = &config.ignition.config;
    for (at, merge) in sources.merge.iter().enumerate() {
        let path = || ignition.member("config").member("merge").index(at);
        plain(
            merge,
            "Compression in Ignition.Config.Merge is",
            "HTTPHeaders in Ignition.Config.Merge are",
            path,
        )?;
    }
    plain(
        &sources.replace,
        "Compression in Ignition.Config.Replace is",
        "HTTPHeaders in Ignition.Config.Replace are",
        || ignition.member("config").member("replace"),
    )?;
    let authorities = &config.ignition.security.tls.certificate_authorities;
    for (at, authority) in authorities.iter().enumerate() {
        let tls = || ignition.member("security").member("tls");
        plain(
            authority,
            "Compression in Ignition.Security.TLS.CertificateAuthorities is",
            "HTTPHeaders in Ignition.Security.TLS.CertificateAuthorities are",
            || tls().member("certificateAuthorities").index(at),
        )?;
    }
    if !config.ignition.proxy.is_empty() {
        return lost("HTTP proxies in Ignition.Proxy are", ignition.member("proxy"));
    }
    Ok(())
}

/// Refuses compression and headers of something that 2.2 fetches as it is.
fn plain(
    resource: &Resource,
    compression: &'static str,
    headers: &'static str,
    path: impl Fn() -> Path,
) -> Result<(), ConvertError> {
    if resource.compression.is_some() {
        return lost(compression, path().member("compression"));
    }
    if !resource.http_headers.is_empty() {
        return lost(headers, path().member("httpHeaders"));
    }
    Ok(())
}

/// Refuses partitions with a place: 2.2 measures in sectors, and nobody knows here how large one is.
fn partitions(config: &Config) -> Result<(), ConvertError> {
    for (disk, it) in config.storage.disks.iter().enumerate() {
        for (number, partition) in it.partitions.iter().enumerate() {
            if partition.size_mib.is_some() || partition.start_mib.is_some() {
                let what = "SizeMiB and StartMiB in Storage.Disks.Partitions is";
                return lost(what, partition_path(disk, number));
            }
            if partition.resize == Some(true) {
                return refuse(Loss::resize(VERSION), partition_path(disk, number));
            }
        }
    }
    Ok(())
}

fn filesystems_and_files(config: &Config) -> Result<(), ConvertError> {
    let storage = Path::default().member("storage");
    let mounted = config.storage.filesystems.iter().position(|it| !it.mount_options.is_empty());
    if let Some(at) = mounted {
        let path = storage.member("filesystems").index(at).member("mountOptions");
        return lost("MountOptions in Storage.Filesystems is", path);
    }
    for (at, file) in config.storage.files.iter().enumerate() {
        let path = || storage.member("files").index(at);
        if !file.contents.http_headers.is_empty() {
            return lost("HTTPHeaders in Storage.Files.Contents are", path().member("contents"));
        }
        if file.append.iter().any(|piece| !piece.http_headers.is_empty()) {
            return lost("HTTPHeaders in Storage.Files.Append.* are", path().member("append"));
        }
    }
    Ok(())
}
