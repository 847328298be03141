//! Conversion from 3.2 to 2.2.
//!
//! 2.2 places every file on a named filesystem. A filesystem of 3.x with a path is named after the
//! path, one without a path by a number; files on no such filesystem are on `root`. 2.2 replaces
//! existing files by default, and appends by another entry for the same path.

mod members;

use super::{
    ConvertError, UnsupportedFeature,
    down::{partition_path, refuse, refuse_luks_and_absent_users},
};
use crate::{
    config::{Config, Resource},
    object::Field as _,
    report::Path,
    v2, validate,
};

/// Version in error texts.
const VERSION: &str = "2.2";

/// Converts `config`, which is valid by the rules of 3.2, to 2.2.
pub(super) fn translate(config: Config) -> Result<v2::Config, ConvertError> {
    ignition(&config)?;
    refuse_luks_and_absent_users(&config, VERSION)?;
    partitions(&config)?;
    filesystems_and_files(&config)?;
    let config = members::config(config);
    let report = validate::v2(v2::V2_2_AS_SPEC, &config);
    if report.is_fatal() {
        return Err(ConvertError::InvalidResult(report));
    }
    Ok(config)
}

fn unsupported<T>(what: &'static str, path: Path) -> Result<T, ConvertError> {
    refuse(UnsupportedFeature::On { what, version: VERSION }, path)
}

/// Rejects proxies, and compression and headers that 2.2 does not support.
fn ignition(config: &Config) -> Result<(), ConvertError> {
    let ignition = Path::default().member("ignition");
    let sources = &config.ignition.config;
    for (at, merge) in sources.merge.iter().enumerate() {
        let path = || ignition.member("config").member("merge").index(at);
        refuse_compression_and_headers(
            merge,
            "Compression in Ignition.Config.Merge is",
            "HTTPHeaders in Ignition.Config.Merge are",
            path,
        )?;
    }
    refuse_compression_and_headers(
        &sources.replace,
        "Compression in Ignition.Config.Replace is",
        "HTTPHeaders in Ignition.Config.Replace are",
        || ignition.member("config").member("replace"),
    )?;
    let authorities = &config.ignition.security.tls.certificate_authorities;
    for (at, authority) in authorities.iter().enumerate() {
        let tls = || ignition.member("security").member("tls");
        refuse_compression_and_headers(
            authority,
            "Compression in Ignition.Security.TLS.CertificateAuthorities is",
            "HTTPHeaders in Ignition.Security.TLS.CertificateAuthorities are",
            || tls().member("certificateAuthorities").index(at),
        )?;
    }
    if !config.ignition.proxy.is_empty() {
        return unsupported("HTTP proxies in Ignition.Proxy are", ignition.member("proxy"));
    }
    Ok(())
}

/// Rejects compression and headers of a reference.
fn refuse_compression_and_headers(
    resource: &Resource,
    compression: &'static str,
    headers: &'static str,
    path: impl Fn() -> Path,
) -> Result<(), ConvertError> {
    if resource.compression.is_some() {
        return unsupported(compression, path().member("compression"));
    }
    if !resource.http_headers.is_empty() {
        return unsupported(headers, path().member("httpHeaders"));
    }
    Ok(())
}

/// Rejects partitions with a start or size: 2.2 measures in sectors, whose size is not known here.
fn partitions(config: &Config) -> Result<(), ConvertError> {
    for (disk, it) in config.storage.disks.iter().enumerate() {
        for (number, partition) in it.partitions.iter().enumerate() {
            if partition.size_mib.is_some() || partition.start_mib.is_some() {
                let what = "SizeMiB and StartMiB in Storage.Disks.Partitions is";
                return unsupported(what, partition_path(disk, number));
            }
            if partition.resize == Some(true) {
                return refuse(UnsupportedFeature::resize(VERSION), partition_path(disk, number));
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
        return unsupported("MountOptions in Storage.Filesystems is", path);
    }
    for (at, file) in config.storage.files.iter().enumerate() {
        let path = || storage.member("files").index(at);
        if !file.contents.http_headers.is_empty() {
            return unsupported(
                "HTTPHeaders in Storage.Files.Contents are",
                path().member("contents"),
            );
        }
        if file.append.iter().any(|piece| !piece.http_headers.is_empty()) {
            return unsupported(
                "HTTPHeaders in Storage.Files.Append.* are",
                path().member("append"),
            );
        }
    }
    Ok(())
}
