//! Generators of random configs, with few names so that two configs have entries in common.

use mco_ignition::{Config, config::*};
use proptest::{collection::vec, option::weighted, prelude::*, sample::select};

/// Generates valid configs.
pub(crate) fn config() -> impl Strategy<Value = Config> {
    let parts = (kernel_arguments(), passwd(), storage(), units(), sources());
    parts.prop_map(|(kernel_arguments, passwd, storage, systemd, sources)| {
        let mut config = Config::empty();
        config.ignition.config = sources;
        config.kernel_arguments = kernel_arguments;
        config.passwd = passwd;
        config.storage = storage;
        config.systemd = systemd;
        config
    })
}

fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

fn maybe<T: std::fmt::Debug>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    weighted(0.4, value)
}

/// Generates a list of at most three items with distinct keys.
fn list<T: std::fmt::Debug + 'static>(
    item: impl Strategy<Value = T>,
    key: fn(&T) -> String,
) -> impl Strategy<Value = Vec<T>> {
    vec(item, 0..=3).prop_map(move |mut items| {
        let mut seen = std::collections::HashSet::new();
        items.retain(|item| seen.insert(key(item)));
        items
    })
}

fn kernel_arguments() -> impl Strategy<Value = KernelArguments> {
    const ARGUMENTS: &[&str] = &["quiet", "nosmt", "a=1", "b=2", "c"];
    (list(text(ARGUMENTS), String::clone), list(text(ARGUMENTS), String::clone)).prop_map(
        |(should_exist, mut should_not_exist)| {
            should_not_exist.retain(|argument| !should_exist.contains(argument));
            KernelArguments { should_exist, should_not_exist }
        },
    )
}

fn passwd() -> impl Strategy<Value = Passwd> {
    const KEYS: &[&str] = &["ssh-ed25519 A", "ssh-rsa B", "ssh-rsa C"];
    let user = (
        text(&["core", "root", "other"]),
        maybe(text(&["$y$1", "$y$2"])),
        list(text(KEYS), String::clone),
        maybe(0..2000_i64),
    );
    let user = user.prop_map(|(name, password_hash, ssh_authorized_keys, uid)| User {
        name,
        password_hash,
        ssh_authorized_keys,
        uid,
        ..User::default()
    });
    let group = (text(&["wheel", "adm"]), maybe(0..2000_i64));
    let group = group.prop_map(|(name, gid)| Group { name, gid, ..Group::default() });
    (list(user, |user| user.name.clone()), list(group, |group| group.name.clone()))
        .prop_map(|(users, groups)| Passwd { groups, users })
}

const PATHS: &[&str] = &["/etc/a", "/etc/b", "/etc/c", "/etc/d é", "/etc/\u{2028}<&>"];

fn storage() -> impl Strategy<Value = Storage> {
    let files = list(file(), |file| file.path.clone());
    let directory = (text(PATHS), maybe(0..0o1000_i64));
    let directory =
        directory.prop_map(|(path, mode)| Directory { path, mode, ..Directory::default() });
    let link = (text(PATHS), text(&["/t", "u"]), maybe(any::<bool>())).prop_map(
        |(path, target, overwrite)| Link {
            path,
            target: Some(target),
            overwrite,
            ..Link::default()
        },
    );
    let directories = list(directory, |directory| directory.path.clone());
    let links = list(link, |link| link.path.clone());
    let disks = list(disk(), |disk| disk.device.clone());
    let filesystems = list(filesystem(), |filesystem| filesystem.device.clone());
    (files, directories, links, disks, filesystems).prop_map(
        |(files, mut directories, mut links, disks, filesystems)| {
            directories.retain(|it| !files.iter().any(|file| file.path == it.path));
            links.retain(|it| {
                !files.iter().any(|file| file.path == it.path)
                    && !directories.iter().any(|directory| directory.path == it.path)
            });
            Storage { directories, disks, files, filesystems, links, ..Storage::default() }
        },
    )
}

fn resource() -> impl Strategy<Value = Resource> {
    let header = (text(&["A", "B", "C"]), maybe(text(&["1", "2"])));
    let header = header.prop_map(|(name, value)| HttpHeader { name, value });
    let headers = list(header, |header| header.name.clone());
    let source = text(&["http://x/a", "https://x/b", "data:,c", "data:;base64,ZA=="]);
    (source, headers, maybe(text(&["", "gzip"]))).prop_map(|(source, headers, compression)| {
        let fits = source.starts_with("http");
        Resource {
            compression,
            http_headers: if fits { headers } else { Vec::new() },
            source: Some(source),
            ..Resource::default()
        }
    })
}

fn file() -> impl Strategy<Value = File> {
    let parts = (text(PATHS), resource(), vec(resource(), 0..3), maybe(0..0o1000_i64));
    let owner = maybe(text(&["core", "root"]));
    (parts, owner, maybe(any::<bool>())).prop_map(
        |((path, contents, append, mode), name, overwrite)| {
            let user = Owner { id: None, name };
            File { path, contents, append, mode, user, overwrite, ..File::default() }
        },
    )
}

fn disk() -> impl Strategy<Value = Disk> {
    let partition = (0..3_i64, maybe(text(&["p", "q", "r"])), maybe(1..100_i64));
    let partition = partition.prop_map(|(number, label, size_mib)| {
        let label = if number == 0 { Some(label.unwrap_or_else(|| "s".to_owned())) } else { label };
        Partition { number, label, size_mib, ..Partition::default() }
    });
    let partitions = list(partition, |partition| {
        // Neither a number nor a label may be a duplicate.
        partition.label.clone().unwrap_or_else(|| partition.number.to_string())
    });
    (text(&["/dev/vda", "/dev/vdb"]), partitions).prop_map(|(device, mut partitions)| {
        let mut numbers = std::collections::HashSet::new();
        partitions.retain(|it| it.number == 0 || numbers.insert(it.number));
        Disk { device, partitions, ..Disk::default() }
    })
}

fn filesystem() -> impl Strategy<Value = Filesystem> {
    let options = || vec(text(&["-q", "-v"]), 0..3);
    let parts = (text(&["/dev/vda", "/dev/vdb"]), text(&["ext4", "xfs"]), options(), options());
    parts.prop_map(|(device, format, options, mount_options)| Filesystem {
        device,
        format: Some(format),
        options,
        mount_options,
        ..Filesystem::default()
    })
}

fn units() -> impl Strategy<Value = Systemd> {
    const CONTENTS: &[&str] = &["[Unit]\nA=b\n", "[Install]\nWantedBy=c.target\n", ""];
    let dropin = (text(&["10-a.conf", "20-b.conf"]), maybe(text(CONTENTS)));
    let dropin = dropin.prop_map(|(name, contents)| Dropin { contents, name });
    let dropins = list(dropin, |dropin| dropin.name.clone());
    let name = text(&["a.service", "b.socket", "c@.service"]);
    let unit = (name, maybe(text(CONTENTS)), dropins, maybe(any::<bool>()), maybe(any::<bool>()));
    let unit = unit.prop_map(|(name, contents, dropins, enabled, mask)| Unit {
        contents,
        dropins,
        enabled,
        mask,
        name,
    });
    list(unit, |unit| unit.name.clone()).prop_map(|units| Systemd { units })
}

fn sources() -> impl Strategy<Value = Sources> {
    let merge = list(resource(), |resource| resource.source.clone().unwrap_or_default());
    merge.prop_map(|merge| Sources { merge, ..Sources::default() })
}
