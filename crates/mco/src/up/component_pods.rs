//! The Deployments, DaemonSets and Services of the components, those of an installation.
//!
//! The components run in this process; their pods exist so that the commands of an installed cluster
//! work: `kubectl get pods`, `kubectl logs`.

use std::time::Duration;

use kube::{
    Client,
    api::{Patch, PatchParams},
};
use mco_cluster::{CallError, Shutdown, report};
use mco_operator::manifests::{self, ObjectName, Parameters};
use serde_json::Value;
use tracing::warn;

use crate::command::install;

/// Label of the pods of a component.
pub(crate) const APP: &str = "k8s-app";
pub(crate) const OPERATOR: &str = "machine-config-operator";
pub(crate) const CONTROLLER: &str = "machine-config-controller";
pub(crate) const SERVER: &str = "machine-config-server";
pub(crate) const DAEMON: &str = "machine-config-daemon";

/// Field manager of the objects.
const MANAGER: &str = "mco-up";

/// Kinds of the objects.
const KINDS: [&str; 3] = ["Service", "Deployment", "DaemonSet"];

/// Pause after a failed write.
const RETRY: Duration = Duration::from_secs(1);

/// Time after which objects that were deleted or changed are applied again.
const RESYNC: Duration = Duration::from_secs(30);

/// Keeps the objects until shutdown.
pub(crate) async fn run(client: Client, shutdown: Shutdown) {
    let objects = objects();
    loop {
        let applied = apply(&client, &objects).await.inspect_err(|error| {
            warn!(error = report::chain(error), "Failed to apply the workloads of the components");
        });
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(if applied.is_ok() { RESYNC } else { RETRY }) => {}
        }
    }
}

async fn apply(client: &Client, objects: &[Value]) -> Result<(), CallError> {
    for object in objects {
        let name = ObjectName::of(object);
        let params = PatchParams::apply(MANAGER).force();
        install::api(client, &name).patch(&name.name, &params, &Patch::Apply(object)).await?;
    }
    Ok(())
}

/// Returns the objects of the components.
fn objects() -> Vec<Value> {
    let parameters = Parameters::new(manifests::IMAGE);
    let all = manifests::operator(&parameters).into_iter();
    let all = all.chain(manifests::all_operands(&parameters));
    all.filter(|object| KINDS.contains(&&*ObjectName::of(object).kind)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_component_has_a_workload_with_its_label() {
        let objects = objects();
        for (kind, name) in [
            ("Deployment", OPERATOR),
            ("Deployment", CONTROLLER),
            ("DaemonSet", SERVER),
            ("DaemonSet", DAEMON),
        ] {
            let is_it = |object: &&Value| {
                let found = ObjectName::of(object);
                found.kind == kind && found.name == name
            };
            let object = objects.iter().find(is_it).unwrap();
            let label = &object["spec"]["template"]["metadata"]["labels"][APP];
            assert_eq!(label, name);
        }
    }
}
