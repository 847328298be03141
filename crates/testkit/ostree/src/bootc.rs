//! `bootc`.

use anyhow::{Context as _, bail};
use ostree::{Deployment, KernelArgs};
use serde_json::{Value, json};

use crate::{
    arguments::Arguments,
    layers, power, registry,
    sysroot::{self, Origin, System},
};

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    let (command, rest) = words.split_first().context("a subcommand is required")?;
    match command.as_str() {
        "status" => print_status(rest),
        "switch" => switch(rest),
        "rollback" => roll_back(rest),
        other => bail!("unrecognized subcommand '{other}'"),
    }
}

/// The deployments beside the booted one.
struct Others {
    staged: Option<Deployment>,
    rollback: Option<Deployment>,
    more: Vec<Deployment>,
    is_rollback_queued: bool,
}

fn others(system: &System) -> Others {
    let all = system.sysroot.deployments();
    let (mut staged, rest): (Vec<Deployment>, Vec<Deployment>) =
        all.into_iter().partition(Deployment::is_staged);
    let mut rest = rest.into_iter().filter(|it| !it.equal(&system.booted));
    let rollback = rest.next();
    let is_rollback_queued =
        rollback.as_ref().is_some_and(|rollback| rollback.index() < system.booted.index());
    Others { staged: staged.pop(), rollback, more: rest.collect(), is_rollback_queued }
}

fn reference(image: &str) -> Value {
    let image = image.strip_prefix(registry::REGISTRY).unwrap_or(image);
    json!({"image": image, "transport": "registry"})
}

fn entry(system: &System, deployment: &Deployment) -> anyhow::Result<Value> {
    let origin = Origin::of(deployment)?;
    let (_, digest) = registry::image(&origin.image)?;
    // bootc does not know the layers of rpm-ostree.
    let is_incompatible = layers::of(&system.repo, &deployment.csum())?.is_layered;
    let image = json!({
        "image": reference(&origin.image),
        "version": null,
        "timestamp": null,
        "imageDigest": format!("sha256:{digest}"),
        "architecture": "amd64",
    });
    Ok(json!({
        "image": if is_incompatible { Value::Null } else { image },
        "cachedUpdate": null,
        "incompatible": is_incompatible,
        "pinned": deployment.is_pinned(),
        "softRebootCapable": false,
        "downloadOnly": false,
        "store": "ostreeContainer",
        "ostree": {
            "stateroot": deployment.osname().as_str(),
            "checksum": deployment.csum().as_str(),
            "deploySerial": deployment.deployserial(),
        },
        "composefs": null,
    }))
}

fn print_status(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &["--json"], &["--format"])?.without_operands()?;
    let is_json = given.has(&["--json"]) || given.values("--format") == ["json"];
    anyhow::ensure!(is_json, "only --json is known here");
    let system = System::open()?;
    let Others { staged, rollback, is_rollback_queued, .. } = others(&system);
    let one = |it: Option<&Deployment>| {
        it.map_or(Ok(Value::Null), |deployment| entry(&system, deployment))
    };
    let next = staged.as_ref().unwrap_or(&system.booted);
    let order = if is_rollback_queued { "rollback" } else { "default" };
    let host = json!({
        "apiVersion": "org.containers.bootc/v1",
        "kind": "BootcHost",
        "metadata": {"name": "host"},
        "spec": {"image": reference(&Origin::of(next)?.image), "bootOrder": order},
        "status": {
            "staged": one(staged.as_ref())?,
            "booted": one(Some(&system.booted))?,
            "rollback": one(rollback.as_ref())?,
            "rollbackQueued": is_rollback_queued,
            "type": "bootcHost",
        },
    });
    println!("{host}");
    Ok(())
}

fn switch(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &["--quiet"], &["--transport"])?;
    let [image] = given.operands.as_slice() else { bail!("one image is required") };
    let system = System::open()?;
    power::moment("before an image is pulled");
    let target = format!("{}{image}", registry::REGISTRY);
    let staged = others(&system).staged;
    let next = staged.as_ref().unwrap_or(&system.booted);
    if Origin::of(next)?.image == target {
        println!("Image specification is unchanged.");
        return Ok(());
    }
    let commit = registry::pull_image(&system.repo, &target)?;
    let arguments = KernelArgs::from_string(&sysroot::options(&system.booted)?);
    let origin = Origin { image: target, ..Origin::default() };
    system.stage(&commit, &origin, &arguments)?;
    println!("Queued for next boot: {image}");
    Ok(())
}

fn roll_back(words: &[String]) -> anyhow::Result<()> {
    Arguments::parse(words, &[], &[])?.without_operands()?;
    let system = System::open()?;
    // A staged deployment is dropped, as by the real one.
    let Others { rollback, more, is_rollback_queued, .. } = others(&system);
    let rollback = rollback.context("No rollback available")?;
    let mut order = if is_rollback_queued {
        vec![Clone::clone(&system.booted), rollback]
    } else {
        vec![rollback, Clone::clone(&system.booted)]
    };
    order.extend(more);
    system.write(&order)?;
    let next = if is_rollback_queued { "current" } else { "rollback" };
    println!("Next boot: {next} deployment");
    Ok(())
}
