//! The files of `deploy/`: what an administrator applies, as plain manifests, a kustomize base and a Helm
//! chart. `mco_operator::manifests` builds the objects.

mod helm;

use mco_operator::manifests::{IMAGE, MANAGED_BY, Parameters, install, namespaces, operator, yaml};
use serde_json::Value;

/// First line of every generated manifest.
const HEADER: &str = "# Generated from crates/operator/src/manifests by `make gen`. Do not edit.\n";

/// Name of the file with the namespaces, which sorts first.
const NAMESPACES: &str = "00-namespace.yaml";

/// Name of the file with the operator.
const OPERATOR: &str = "machine-config-operator.yaml";

/// Returns the settings of the generated files.
fn parameters() -> Parameters {
    Parameters::new(IMAGE)
}

/// Returns the path below `deploy/` and the text of every file but the CRDs.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let plain = [
        (NAMESPACES, yaml(&namespaces(&parameters()))),
        (OPERATOR, yaml(&operator(&parameters()))),
        ("kustomization.yaml", kustomization()),
    ];
    let plain = plain.into_iter().map(|(path, text)| (path.to_owned(), text));
    let files = plain.chain(helm::files());
    files.map(|(path, text)| (path, format!("{HEADER}{text}"))).collect()
}

/// Returns the objects that an administrator applies, CRDs first, as one YAML stream.
#[must_use]
pub fn stream() -> String {
    format!("{HEADER}{}", yaml(&install(&parameters())))
}

/// Like [`stream`], for an installation in another namespace.
#[must_use]
pub fn stream_in(namespace: &str) -> String {
    yaml(&install(&Parameters { namespace: namespace.to_owned(), ..parameters() }))
}

/// Returns all objects of an installation, also those that the operator creates, without the CRDs.
#[must_use]
pub fn everything() -> Vec<Value> {
    let parameters = parameters();
    let operands = mco_operator::manifests::all_operands(&parameters);
    namespaces(&parameters).into_iter().chain(operator(&parameters)).chain(operands).collect()
}

/// Returns the kustomize base of the folder.
fn kustomization() -> String {
    let definitions = mco_api::crds();
    let definitions = definitions.iter().filter_map(|crd| crd.metadata.name.as_ref());
    let definitions = definitions.map(|name| format!("crds/{name}.yaml"));
    let paths = definitions.chain([NAMESPACES, OPERATOR].map(str::to_owned));
    let paths: Vec<String> = paths.map(|path| format!("- {path}\n")).collect();
    let paths = paths.concat();
    let (key, value) = MANAGED_BY;
    format!(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
         labels:\n- pairs:\n    {key}: {value}\nresources:\n{paths}"
    )
}
