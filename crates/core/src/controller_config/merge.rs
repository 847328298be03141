//! Merge of new facts into the ControllerConfig of a cluster.

use mco_api::{
    Bytes,
    controller_config::{ControllerConfigSpec, MtuMigration, NetworkInfo, ProxyStatus},
};

use super::{Origin, Wanted};

/// Returns the spec that a ControllerConfig is to have.
///
/// Texts are replaced only by others that are not empty, and images are added, never removed. On
/// OpenShift all other members follow the cluster. On another cluster a member without a source is left
/// to the administrator, who may have set it by hand. `releaseImage` is never changed.
///
/// `keeps_dns` leaves an address of the DNS server alone that is only derived: in profile `full` it is
/// part of the kubelet's configuration, and a new one would reboot the nodes.
#[must_use]
pub fn merge(
    found: &ControllerConfigSpec,
    wanted: &Wanted,
    keeps_dns: bool,
) -> ControllerConfigSpec {
    let (new, mut merged) = (&wanted.spec, found.clone());
    let keeps_dns = keeps_dns && wanted.is_dns_derived;
    let texts = [
        (&mut merged.cluster_dns_ip, &new.cluster_dns_ip),
        (&mut merged.cloud_provider_config, &new.cloud_provider_config),
        (&mut merged.platform, &new.platform),
        (&mut merged.etcd_discovery_domain, &new.etcd_discovery_domain),
        (&mut merged.os_image_url, &new.os_image_url),
        (&mut merged.base_os_container_image, &new.base_os_container_image),
        (&mut merged.base_os_extensions_container_image, &new.base_os_extensions_container_image),
        (&mut merged.network_type, &new.network_type),
        (&mut merged.ip_families, &new.ip_families),
    ];
    for (to, from) in texts {
        if !from.is_empty() {
            to.clone_from(from);
        }
    }
    if keeps_dns {
        merged.cluster_dns_ip.clone_from(&found.cluster_dns_ip);
    }
    merged.images.extend(new.images.clone());
    merged.kube_api_server_serving_ca_data = new.kube_api_server_serving_ca_data.clone();
    merged.root_ca_data = new.root_ca_data.clone();
    let is_openshift = wanted.origin == Origin::OpenShift;
    bytes(&mut merged.cloud_provider_ca_data, new.cloud_provider_ca_data.as_ref(), is_openshift);
    bytes(&mut merged.additional_trust_bundle, new.additional_trust_bundle.as_ref(), is_openshift);
    let secret = new.internal_registry_pull_secret.as_ref();
    bytes(&mut merged.internal_registry_pull_secret, secret, is_openshift);
    if is_openshift || !new.image_registry_bundle_user_data.is_empty() {
        merged.image_registry_bundle_user_data.clone_from(&new.image_registry_bundle_user_data);
    }
    if is_openshift {
        merged.image_registry_bundle_data.clone_from(&new.image_registry_bundle_data);
    }
    let (infra, dns) = (new.infra.clone(), new.dns.clone());
    (merged.infra, merged.dns) = (infra.or(merged.infra), dns.or(merged.dns));
    merged.pull_secret = new.pull_secret.clone().or(merged.pull_secret);
    if new.proxy.is_some() || is_openshift {
        merged.proxy = cleared(merged.proxy, new.proxy.clone(), ProxyStatus::default());
    }
    if new.network.is_some() || is_openshift {
        let migration = |it: Option<&NetworkInfo>| it.and_then(|it| it.mtu_migration.clone());
        let (old, new) = (migration(merged.network.as_ref()), migration(new.network.as_ref()));
        if old != new {
            // A merge patch cannot write a null, which the kind requires.
            let migration = cleared(old, new, MtuMigration::default());
            merged.network = Some(NetworkInfo { mtu_migration: migration });
        }
    }
    merged
}

/// Returns the new value. One that was removed is empty and not null: the kind requires the member, and
/// a merge patch cannot write a null.
fn cleared<T>(old: Option<T>, new: Option<T>, empty: T) -> Option<T> {
    new.or_else(|| old.map(|_| empty))
}

fn bytes(to: &mut Option<Bytes>, from: Option<&Bytes>, is_exact: bool) {
    if from.is_some() || is_exact {
        *to = cleared(to.take(), from.cloned(), Bytes::default());
    }
}
