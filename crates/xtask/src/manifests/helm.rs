//! The Helm chart. Its templates are the same manifests, with the settings as values.

use mco_operator::manifests::{Parameters, namespaces, operator, yaml};
use serde_json::{Value, json};

/// Path of the chart below `deploy/`.
const CHART: &str = "helm/mco";

/// Settings that a chart leaves out if they are empty: flag of the operator, value of the chart, and
/// description.
const OPTIONAL: [(&str, &str, &str); 2] = [
    ("--profile", "profile", "Contents of base configs: adopt or full; adopt if empty."),
    (
        "--join-tokens",
        "joinTokens",
        "Authentication of new machines: required or off; off if empty.",
    ),
];

/// Returns the path below `deploy/` and the text of every file.
pub(super) fn files() -> Vec<(String, String)> {
    let version = env!("CARGO_PKG_VERSION");
    let chart = format!(
        "apiVersion: v2\nname: mco\ndescription: Machine configuration for Kubernetes nodes\n\
         type: application\nversion: {version}\nappVersion: \"{version}\"\n"
    );
    let settings = OPTIONAL.map(|(_, value, text)| format!("# {text}\n{value}: \"\"\n"));
    let values = format!(
        "# Image of all processes.\nimage: {}\n{}",
        mco_operator::manifests::IMAGE,
        settings.concat()
    );
    let mut parameters = Parameters::new("{{ .Values.image }}");
    // Replaced below, together with their lines.
    parameters.profile = Some("CHART".into());
    parameters.join_tokens = Some("CHART".into());
    let operator = OPTIONAL.iter().fold(yaml(&operator(&parameters)), |text, (flag, value, _)| {
        conditional(&text, flag, value)
    });
    let files = [
        ("Chart.yaml", chart),
        ("values.yaml", values),
        ("templates/namespaces.yaml", yaml(&kept(namespaces(&parameters)))),
        ("templates/machine-config-operator.yaml", operator),
    ];
    files.map(|(path, text)| (format!("{CHART}/{path}"), text)).into()
}

/// Returns objects that Helm leaves when the release is uninstalled: the namespaces hold certificates and
/// tokens of machines, and what the operator deployed.
fn kept(mut objects: Vec<Value>) -> Vec<Value> {
    let metadata = objects.iter_mut().filter_map(|object| object.get_mut("metadata"));
    for metadata in metadata.filter_map(Value::as_object_mut) {
        metadata.insert("annotations".to_owned(), json!({"helm.sh/resource-policy": "keep"}));
    }
    objects
}

/// Replaces the line with a flag by one that exists only if the value is set.
fn conditional(text: &str, flag: &str, value: &str) -> String {
    let given = format!("\"{flag}=CHART\"");
    let lines = text.lines().map(|line| match line.split_once(&given) {
        Some((indent, _)) => format!(
            "{{{{- with .Values.{value} }}}}\n{indent}\"{flag}={{{{ . }}}}\"\n{{{{- end }}}}\n"
        ),
        None => format!("{line}\n"),
    });
    lines.collect()
}
