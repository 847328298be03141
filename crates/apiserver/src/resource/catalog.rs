//! The resources that are served now, by group, version and plural.

use std::{
    collections::BTreeMap,
    sync::{Arc, RwLock},
};

use super::{Resource, builtin};

type Address = (String, String, String);

/// The resources served at one moment.
pub(crate) type Served = BTreeMap<Address, Arc<Resource>>;

/// The served resources. Changes when a `CustomResourceDefinition` changes.
#[derive(Debug)]
pub(crate) struct Catalog {
    served: RwLock<Arc<Served>>,
}

impl Catalog {
    /// Creates a catalog of the built-in resources.
    pub(crate) fn new() -> Self {
        let served = builtin::all().map(|one| (address(&one), Arc::new(one))).collect();
        Self { served: RwLock::new(Arc::new(served)) }
    }

    /// Returns all resources served now.
    pub(crate) fn served(&self) -> Arc<Served> {
        Arc::clone(&self.served.read().expect("no holder of this lock panics"))
    }

    /// Returns the resource at these coordinates.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let address = (group.to_owned(), version.to_owned(), plural.to_owned());
        self.served().get(&address).cloned()
    }

    /// Replaces the resources of one `CustomResourceDefinition`. An empty list removes them.
    pub(crate) fn replace(&self, group: &str, plural: &str, resources: Vec<Resource>) {
        let mut served = self.served.write().expect("no holder of this lock panics");
        let mut next: Served = served
            .iter()
            .filter(|((g, _, p), one)| !(one.custom && g == group && p == plural))
            .map(|(address, one)| (address.clone(), Arc::clone(one)))
            .collect();
        for resource in resources {
            next.entry(address(&resource)).or_insert_with(|| Arc::new(resource));
        }
        *served = Arc::new(next);
    }
}

fn address(resource: &Resource) -> Address {
    (resource.group.clone(), resource.version.clone(), resource.plural.clone())
}
