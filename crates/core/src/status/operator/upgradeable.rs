//! The condition Upgradeable: everything that blocks an upgrade of the cluster.

use mco_api::{
    MachineConfigPool,
    condition::{PoolCondition, reason},
    meta::ConditionStatus,
};

use super::{is, pools::name};
use crate::status::Finding;

/// Separator of the reasons if there are several. Compat: the reference joins the reasons of
/// `EvaluationConditionsDetected` with it.
pub(super) const SEPARATOR: &str = "::";

/// Returns the value of the condition. Unlike in the reference it has all reasons, in a fixed order,
/// and names the pools.
pub(super) fn finding(pools: &[&MachineConfigPool], boot_images: Option<&str>) -> Finding {
    let boot_images = boot_images.map(|text| (reason::BOOT_IMAGE_SKEW, text.to_owned()));
    let blockers = [degraded(pools), interrupted(pools), boot_images];
    let blockers: Vec<(&str, String)> = blockers.into_iter().flatten().collect();
    if blockers.is_empty() {
        return Finding { status: ConditionStatus::True, ..Finding::no(reason::AS_EXPECTED, "") };
    }
    let (reasons, texts): (Vec<&str>, Vec<String>) = blockers.into_iter().unzip();
    Finding::no(&reasons.join(SEPARATOR), &texts.join("; "))
}

/// Returns the names of the pools with the condition; `None` if there are none.
fn named(pools: &[&MachineConfigPool], kind: &PoolCondition) -> Option<String> {
    let names: Vec<&str> =
        pools.iter().filter(|pool| is(pool, kind)).map(|pool| name(pool)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn degraded(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let names = named(pools, &PoolCondition::Degraded)?;
    let text = format!(
        "One or more machine config pools are degraded, please see `oc get mcp` for further details \
         and resolve before upgrading: {names}"
    );
    Some((reason::DEGRADED_POOL, text))
}

fn interrupted(pools: &[&MachineConfigPool]) -> Option<(&'static str, String)> {
    let names = named(pools, &PoolCondition::BuildInterrupted)?;
    let text = format!(
        "The image build of these pools was interrupted: {names}; wait for the next build, or delete \
         the MachineOSConfig, before upgrading"
    );
    Some((reason::INTERRUPTED_BUILD, text))
}
