//! The reason of an update: difference, action, rule, MachineConfig and the last write of it.

use std::{collections::BTreeSet, io::Write as _};

use kube::ResourceExt;
use mco_api::machine_configuration::disruption::ClusterPolicies;
use mco_core::{
    diff::reconcile,
    lint::Manifests,
    plan::{self, Circumstances, Drain, NodePlan, PolicyDecision},
    render::{Kind, Provenance},
};
use serde_json::json;

use super::{Output, written};
use crate::{
    load::manifests::ManifestsExt as _,
    print::{self, BOLD, Screen, visible},
    reference::{ClusterObjects, Reference},
    remote::table,
};

/// A difference with the MachineConfigs that set it.
struct Cause {
    decision: PolicyDecision,
    configs: Vec<String>,
}

/// An update to explain.
pub(super) struct Update<'u> {
    /// Name of a node, a pool or a rendered config.
    pub(super) name: &'u str,
    pub(super) objects: &'u ClusterObjects,
    pub(super) manifests: &'u Manifests,
    pub(super) policies: &'u ClusterPolicies,
}

impl Update<'_> {
    /// Prints the differences, their actions and rules, and who made them.
    pub(super) fn explain(&self, output: Output, screen: &mut Screen<'_>) -> anyhow::Result<()> {
        let (from, to) = self.objects.update(self.name)?;
        let (before, after) = reconcile::read(from, to)?;
        let plan = plan::node(&before, &after, self.policies, &Circumstances::default())?;
        let causes = self.causes(&plan)?;
        let (drain, because) = match &plan.drain {
            Drain::Needed(why) => ("drain", why),
            Drain::NotNeeded(why) => ("no drain", why),
        };
        let actions: Vec<String> = plan.actions.iter().map(ToString::to_string).collect();
        let (from, to) = (from.name_any(), to.name_any());
        if matches!(output, Output::Json) {
            let causes: Vec<serde_json::Value> = causes.iter().map(Cause::to_json).collect();
            let document = json!({"name": self.name, "from": from, "to": to, "actions": actions,
                "drain": drain, "changes": causes});
            writeln!(screen, "{}", serde_json::to_string_pretty(&document)?)?;
            return Ok(());
        }
        screen.paint(BOLD, visible(self.name))?;
        if from == to {
            writeln!(screen, " runs {to} and needs no update")?;
            if let (Reference::Node(_), Some(pool)) = (self.objects.get(self.name)?, self.pool()?) {
                print::note(&format!("`mco why {pool}` explains the last change of its pool"));
            }
            return Ok(());
        }
        writeln!(screen, ": {from} -> {to}")?;
        table::write(screen, &lines(&causes, self.manifests))?;
        writeln!(screen, "each node: {drain} ({because}), {}", actions.join(", "))?;
        Ok(())
    }

    fn causes(&self, plan: &NodePlan) -> anyhow::Result<Vec<Cause>> {
        let rendered = match self.pool()? {
            Some(pool) => Some(self.manifests.render(self.manifests.pool(Some(&pool))?)?),
            None => None,
        };
        let cause = |decision: &PolicyDecision| {
            let configs = rendered.as_ref().map(|it| setters(&it.provenance, &decision.subject));
            Cause { configs: configs.unwrap_or_default(), decision: decision.clone() }
        };
        Ok(plan.decisions.iter().map(cause).collect())
    }

    /// Returns the pool whose MachineConfigs make the update.
    fn pool(&self) -> anyhow::Result<Option<String>> {
        Ok(match self.objects.get(self.name)? {
            Reference::Pool(pool) => Some(pool.name_any()),
            Reference::Node(node) => self.objects.pool_of(node).map(ResourceExt::name_any),
            Reference::Config(config) => {
                let mut owners = config.owner_references().iter();
                let owner = owners.find(|it| it.kind == "MachineConfigPool");
                owner.map(|owner| owner.name.clone())
            }
        })
    }
}

impl Cause {
    fn to_json(&self) -> serde_json::Value {
        json!({"change": self.decision.subject, "rule": self.decision.rule.to_string(),
            "actions": texts(&self.decision), "configs": self.configs})
    }
}

fn lines(causes: &[Cause], manifests: &Manifests) -> Vec<Vec<String>> {
    let titles = ["CHANGE", "ACTION", "REASON", "SET BY"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    for Cause { decision, configs } in causes {
        let shown = configs.iter().map(|name| {
            let found = manifests.all_configs().find(|it| it.object.name == *name);
            match found.and_then(|it| written(&it.value)) {
                Some(written) => format!("{name} ({written})"),
                None => name.clone(),
            }
        });
        let mut shown = shown.collect::<Vec<_>>().join(", ");
        if shown.is_empty() {
            "no MachineConfig any more".clone_into(&mut shown);
        }
        lines.push(vec![
            decision.subject.clone(),
            texts(decision).join(", "),
            decision.rule.to_string(),
            shown,
        ]);
    }
    lines
}

fn texts(decision: &PolicyDecision) -> Vec<String> {
    decision.actions.iter().map(ToString::to_string).collect()
}

/// Returns the MachineConfigs that set the part which a decision is about.
fn setters(provenance: &Provenance, subject: &str) -> Vec<String> {
    let mut words = subject.split(' ');
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_meant = |kind: Kind, key: &str| match (subject, kind) {
        (_, Kind::Path) => first == "file" && key == second,
        (_, Kind::Unit) => first == "unit" && key == second,
        (_, Kind::Dropin) => first == "unit" && key.split('/').next() == Some(second),
        ("kernel arguments", Kind::KernelArgument)
        | ("extensions", Kind::Extension)
        | ("SSH keys or password", Kind::User) => true,
        (_, Kind::Setting) => matches!(
            (subject, key),
            ("OS image", "osImageURL") | ("kernel type", "kernelType") | ("FIPS mode", "fips")
        ),
        (_, _) => false,
    };
    let items = provenance.items().filter(|(item, _)| is_meant(item.kind, &item.key));
    let names: BTreeSet<String> = items
        .flat_map(|(_, contributions)| contributions)
        .filter_map(|contribution| provenance.configs().get(contribution.config).cloned())
        .collect();
    names.into_iter().collect()
}
