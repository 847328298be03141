//! Selection of the MachineConfigs of a pool.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mco_api::{
    MachineConfig, MachineConfigPool,
    selector::{self, SelectorError},
};

/// The result of a pool's selector.
#[derive(Clone, Debug)]
pub enum Selection<'a> {
    /// Configs to render, by name.
    Configs(Vec<&'a MachineConfig>),
    /// The selector is empty and would match every config of the cluster, so it is refused.
    ///
    /// Compat: the pool is skipped, not degraded; a warning event names the reason.
    Everything,
}

/// The reason why nothing can be selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// No config matches.
    #[error("no MachineConfigs found matching selector {0}")]
    Nothing(String),
    /// The selector is invalid.
    #[error("spec.machineConfigSelector of pool {pool} is not valid")]
    BadSelector {
        /// Name of the pool.
        pool: String,
        /// Error of the selector.
        source: SelectorError,
    },
}

/// Returns the configs that `pool` selects from `configs`.
pub fn select<'a>(
    pool: &MachineConfigPool,
    configs: impl IntoIterator<Item = &'a MachineConfig>,
) -> Result<Selection<'a>, SelectError> {
    // A missing selector selects nothing; an empty one would select everything.
    let Some(selector) = &pool.spec.machine_config_selector else {
        return Err(SelectError::Nothing(String::new()));
    };
    if selector::is_empty(selector) {
        return Ok(Selection::Everything);
    }
    let bad = |source| SelectError::BadSelector {
        pool: pool.metadata.name.clone().unwrap_or_default(),
        source,
    };
    let none = BTreeMap::new();
    let mut selected = Vec::new();
    for config in configs {
        let labels = config.metadata.labels.as_ref().unwrap_or(&none);
        if selector::matches(selector, labels).map_err(bad)? {
            selected.push(config);
        }
    }
    if selected.is_empty() {
        return Err(SelectError::Nothing(text(selector)));
    }
    selected.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    Ok(Selection::Configs(selected))
}

/// Formats the selector for `kubectl -l`, keys in order.
fn text(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let mut parts: Vec<(&str, String)> =
        labels.map(|(key, value)| (key.as_str(), format!("{key}={value}"))).collect();
    for requirement in selector.match_expressions.iter().flatten() {
        let key = requirement.key.as_str();
        let mut values = requirement.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        parts.push((
            key,
            match requirement.operator.as_str() {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "DoesNotExist" => format!("!{key}"),
                _ => key.to_owned(),
            },
        ));
    }
    parts.sort_by_key(|(key, _)| *key);
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{machine_config, pool};

    fn names(selection: Selection<'_>) -> String {
        match selection {
            Selection::Configs(configs) => configs
                .iter()
                .map(|c| c.metadata.name.as_deref().unwrap())
                .collect::<Vec<_>>()
                .join(" "),
            Selection::Everything => "everything".to_owned(),
        }
    }

    // covers: REN-1, REN-6, REN-7
    #[test]
    fn a_pool_takes_the_configs_its_selector_matches() {
        let configs = [
            machine_config("99-b", "worker"),
            machine_config("00-a", "worker"),
            machine_config("50-i", "infra"),
            machine_config("50-m", "master"),
        ];
        let cases = [
            (
                "worker",
                r#"{"matchLabels":{"machineconfiguration.openshift.io/role":"worker"}}"#,
                "00-a 99-b",
            ),
            (
                "a custom pool selects the configs of workers too",
                r#"{"matchExpressions":[{"key":"machineconfiguration.openshift.io/role","operator":"In","values":["worker","infra"]}]}"#,
                "00-a 50-i 99-b",
            ),
            ("an empty selector is refused", "{}", "everything"),
        ];
        for (case, selector, expected) in cases {
            let selected = select(&pool("p", selector), &configs).expect(case);
            assert_eq!(names(selected), expected, "{case}");
        }
    }

    // covers: REN-7
    #[test]
    fn a_pool_without_configs_names_its_selector() {
        let cases = [
            ("null", ""),
            (
                r#"{"matchExpressions":[{"key":"role","operator":"In","values":["z","a"]},{"key":"b","operator":"DoesNotExist"}],"matchLabels":{"c":"d"}}"#,
                "!b,c=d,role in (a,z)",
            ),
        ];
        for (selector, expected) in cases {
            let error = select(&pool("p", selector), []).expect_err(selector);
            let wanted = format!("no MachineConfigs found matching selector {expected}");
            assert_eq!(error.to_string(), wanted);
        }
    }
}
