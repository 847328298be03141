//! The contents of `storage.conf`: sizes of layers, and additional storage directories.
//!
//! Compat: members that the reference does not know are dropped (containers/storage,
//! pkg/config/config.go).

use mco_api::{
    container_runtime_config::{ContainerRuntimeSettings, Store},
    quantity::Quantity,
};
use toml_edit::TableLike;

use super::AdditionalStores;
use crate::{
    status::quote::quoted,
    toml::write::{Child, Value},
    toml::{TomlFault, read, write::Table},
};

/// The reason why the storage file cannot be written.
///
/// Compat: the texts are the reference's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The base file is not TOML.
    #[error("error decoding crio config")]
    Base(#[source] TomlFault),
    /// The size is negative.
    #[error("invalid overlaySize config {}: the overlaySize should be larger than 0", quoted(.0))]
    OverlaySize(String),
}

fn overlay_size(settings: &ContainerRuntimeSettings) -> Option<Quantity> {
    let size = settings.overlay_size.as_ref().and_then(|size| Quantity::of(size).ok());
    size.filter(|size| !size.is_zero())
}

/// Returns the names of the settings that the storage file has.
pub(super) fn settings_of(
    settings: &ContainerRuntimeSettings,
    stores: AdditionalStores,
) -> Vec<&'static str> {
    let enabled = stores == AdditionalStores::Enabled;
    let all = [
        ("overlaySize", overlay_size(settings).is_some()),
        ("additionalLayerStores", enabled && !settings.additional_layer_stores.is_empty()),
        ("additionalImageStores", enabled && !settings.additional_image_stores.is_empty()),
    ];
    all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
}

/// Returns true if a setting needs the storage file.
#[must_use]
pub fn needs_storage(settings: &ContainerRuntimeSettings, stores: AdditionalStores) -> bool {
    !settings_of(settings, stores).is_empty()
}

/// Writes the storage file: `base`, with the settings.
pub fn storage_conf(
    base: &str,
    settings: &ContainerRuntimeSettings,
    stores: AdditionalStores,
) -> Result<String, StorageError> {
    let mut storage = Storage::parse(base).map_err(StorageError::Base)?;
    if let Some(size) = overlay_size(settings) {
        if size.value() < 0 {
            return Err(StorageError::OverlaySize(size.to_string()));
        }
        storage.options.size = size.to_string();
    }
    if stores == AdditionalStores::Enabled {
        let layers = settings.additional_layer_stores.iter().map(by_reference).collect::<Vec<_>>();
        if !layers.is_empty() {
            storage.options.additional_layer_stores = layers;
        }
        let images = settings.additional_image_stores.iter().map(|store| store.path.clone());
        let images: Vec<String> = images.collect();
        if !images.is_empty() {
            storage.options.additional_image_stores = images;
        }
    }
    Ok(storage.to_toml())
}

/// Returns the path of a layer store, whose layers are found by the image's name.
fn by_reference(store: &Store) -> String {
    let path = store.path.strip_suffix(":ref").unwrap_or(&store.path);
    format!("{path}:ref")
}

struct Storage {
    driver: String,
    run_root: String,
    graph_root: String,
    options: Options,
}

#[derive(Default)]
struct Options {
    additional_image_stores: Vec<String>,
    additional_layer_stores: Vec<String>,
    image_store: String,
    size: String,
    ignore_chown_errors: String,
    use_composefs: String,
    force_mask: u32,
    root_auto_userns_user: String,
    auto_userns_min_size: u32,
    auto_userns_max_size: u32,
    skip_mount_home: String,
    mount_program: String,
    mountopt: String,
    disable_volatile: bool,
    /// Options of each driver, in the reference's order.
    drivers: Vec<(&'static str, Table)>,
    pull: Vec<(String, String)>,
}

/// Members of each driver.
const DRIVERS: [(&str, &[&str]); 5] = [
    ("aufs", &["mountopt"]),
    ("btrfs", &["min_space", "size"]),
    (
        "overlay",
        &[
            "ignore_chown_errors",
            "mountopt",
            "mount_program",
            "size",
            "inodes",
            "skip_mount_home",
            "use_composefs",
            "force_mask",
        ],
    ),
    ("vfs", &["ignore_chown_errors"]),
    ("zfs", &["mountopt", "fsname", "size"]),
];

impl Storage {
    fn parse(text: &str) -> Result<Self, TomlFault> {
        let document = read::document(text)?;
        let Some(storage) = read::table(document.as_table(), "storage")? else {
            let (driver, run_root, graph_root) = Default::default();
            return Ok(Self { driver, run_root, graph_root, options: Options::default() });
        };
        Ok(Self {
            driver: read::text(storage, "driver")?,
            run_root: read::text(storage, "runroot")?,
            graph_root: read::text(storage, "graphroot")?,
            options: match read::table(storage, "options")? {
                Some(options) => Options::of(options)?,
                None => Options::default(),
            },
        })
    }

    fn to_toml(&self) -> String {
        let (mut storage, mut root) = (Table::default(), Table::default());
        storage.text("driver", &self.driver);
        storage.text("runroot", &self.run_root);
        storage.text("graphroot", &self.graph_root);
        storage.child("options", Child::One(self.options.table()));
        root.child("storage", Child::One(storage));
        root.to_toml()
    }
}

impl Options {
    fn of(table: &dyn TableLike) -> Result<Self, TomlFault> {
        // Only its type matters.
        read::table(table, "thinpool")?;
        let mut drivers = Vec::new();
        for (driver, members) in DRIVERS {
            let Some(found) = read::table(table, driver)? else { continue };
            let mut options = Table::default();
            for member in members {
                options.some_text(member, &read::text(found, member)?);
            }
            drivers.push((driver, options));
        }
        Ok(Self {
            additional_image_stores: read::texts(table, "additionalimagestores")?
                .unwrap_or_default(),
            additional_layer_stores: read::texts(table, "additionallayerstores")?
                .unwrap_or_default(),
            image_store: read::text(table, "imagestore")?,
            size: read::text(table, "size")?,
            ignore_chown_errors: read::text(table, "ignore_chown_errors")?,
            use_composefs: read::text(table, "use_composefs")?,
            force_mask: read::number(table, "force_mask")?,
            root_auto_userns_user: read::text(table, "root-auto-userns-user")?,
            auto_userns_min_size: read::number(table, "auto-userns-min-size")?,
            auto_userns_max_size: read::number(table, "auto-userns-max-size")?,
            skip_mount_home: read::text(table, "skip_mount_home")?,
            mount_program: read::text(table, "mount_program")?,
            mountopt: read::text(table, "mountopt")?,
            disable_volatile: read::flag(table, "disable-volatile")?,
            drivers,
            pull: read::text_table(table, "pull_options")?.unwrap_or_default(),
        })
    }

    fn table(&self) -> Table {
        let mut table = Table::default();
        table.some_texts("additionalimagestores", &self.additional_image_stores);
        table.some_text("imagestore", &self.image_store);
        table.some_texts("additionallayerstores", &self.additional_layer_stores);
        table.some_text("size", &self.size);
        table.some_text("ignore_chown_errors", &self.ignore_chown_errors);
        table.some_text("use_composefs", &self.use_composefs);
        table.number("force_mask", self.force_mask.into());
        table.some_text("root-auto-userns-user", &self.root_auto_userns_user);
        table.number("auto-userns-min-size", self.auto_userns_min_size.into());
        table.number("auto-userns-max-size", self.auto_userns_max_size.into());
        table.some_text("skip_mount_home", &self.skip_mount_home);
        table.some_text("mount_program", &self.mount_program);
        table.some_text("mountopt", &self.mountopt);
        table.some_flag("disable-volatile", self.disable_volatile);
        for (driver, options) in &self.drivers {
            table.some_table(driver, options.clone());
        }
        let mut pull_options: Vec<_> = self.pull.iter().collect();
        pull_options.sort();
        let mut pull = Table::default();
        for (name, value) in pull_options {
            pull.value(name, Value::Text(value.clone()));
        }
        table.some_table("pull_options", pull);
        table
    }
}
