//! The name of a rendered config.

use mco_api::{PoolName, RenderedName};
use mco_ignition::{Spec, tree::Tree};
use md5::{Digest, Md5};

use super::{RenderError, merge::Merged};
use crate::goyaml::{self, Sink};

/// Salt that is hashed before the config.
///
/// Compat: part of the contract. Other bytes would give every node in every cluster a new config.
const SALT: [u8; 80] = [
    0x10, 0x7c, 0xce, 0xe4, 0x8b, 0x38, 0xaf, 0xaf, 0x4f, 0xe5, 0x86, 0x76, 0x9d, 0x9a, 0xd3, 0x6e,
    0x19, 0x5d, 0x2f, 0xfd, 0xac, 0x6a, 0x25, 0x07, 0xae, 0x0d, 0xa0, 0xb9, 0x6e, 0x11, 0x57, 0x34,
    0xdb, 0x83, 0x0c, 0xce, 0xda, 0x8d, 0x74, 0x87, 0xbc, 0xb5, 0xc0, 0x97, 0xe9, 0x3e, 0x7e, 0xa5,
    0x40, 0x53, 0xb3, 0x77, 0x0f, 0xa8, 0xd0, 0xc5, 0x92, 0x6b, 0x3a, 0xe3, 0x85, 0xbc, 0xee, 0x1a,
    0x21, 0x1a, 0xeb, 0xca, 0x20, 0xad, 0x1f, 0xea, 0x29, 0x90, 0x94, 0x4f, 0x06, 0xce, 0x17, 0x16,
];

/// A sink that hashes its input and stores nothing.
struct Hash(Md5);

impl Sink for Hash {
    fn put(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// Returns `rendered-<pool>-<hash>`; the hash covers the YAML of the whole spec.
pub(super) fn of(pool: &PoolName, merged: &Merged) -> Result<RenderedName, RenderError> {
    let mut hash = Hash(Md5::new());
    hash.0.update(SALT);
    goyaml::write(&tree(merged), &mut hash)
        .map_err(|source| RenderError::Unhashable { pool: pool.clone(), source })?;
    RenderedName::for_pool(pool, hash.0.finalize().into())
        .map_err(|source| RenderError::Name { pool: pool.clone(), source })
}

fn tree(merged: &Merged) -> Tree<'_> {
    Tree::Object(vec![
        ("osImageURL", Tree::Text(&merged.os_image_url)),
        ("baseOSExtensionsContainerImage", Tree::Text(&merged.extensions_image)),
        ("config", merged.config.tree(Spec::V3_5)),
        ("kernelArguments", list(&merged.kernel_arguments)),
        ("extensions", list(&merged.extensions)),
        ("fips", Tree::Bool(merged.fips)),
        ("kernelType", Tree::Text(&merged.kernel_type)),
    ])
}

fn list(items: &[String]) -> Tree<'_> {
    Tree::List(items.iter().map(|item| Tree::Text(item)).collect())
}
