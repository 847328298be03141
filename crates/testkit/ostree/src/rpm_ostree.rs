//! `rpm-ostree`.

use anyhow::{Context as _, bail, ensure};
use ostree::{Deployment, KernelArgs};

use crate::{
    arguments::Arguments,
    layers, power, registry, status,
    sysroot::{self, Origin, System},
};

const VERSION: &str = "\
rpm-ostree:
 Version: '2024.8'
 Features:
  - rust
  - compose
  - container
  - fedora-integration";

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    let (command, rest) = words.split_first().context("No command specified")?;
    if command == "--version" {
        println!("{VERSION}");
        return Ok(());
    }
    match command.as_str() {
        "status" => print_status(rest),
        "kargs" => kernel_arguments(rest),
        "rebase" => rebase(rest),
        "cleanup" => clean_up(rest),
        "rollback" => roll_back(rest),
        "update" | "upgrade" => update(rest),
        "install" => install(rest),
        "uninstall" | "remove" => uninstall(rest),
        "override" => overrides(rest),
        other => bail!("Unknown command '{other}'"),
    }
}

fn print_status(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &["--json", "--booted", "-b"], &[])?.without_operands()?;
    let system = System::open()?;
    if given.has(&["--json"]) {
        let found = status::json(&system, given.has(&["--booted", "-b"]))?;
        println!("{found:#}");
        return Ok(());
    }
    println!("State: idle\nDeployments:");
    for deployment in system.sysroot.deployments() {
        let mark = if deployment.equal(&system.booted) { '●' } else { ' ' };
        println!("{mark} {}", Origin::of(&deployment)?.image);
        println!("    {}", status::id(&deployment));
    }
    Ok(())
}

fn kernel_arguments(words: &[String]) -> anyhow::Result<()> {
    const CHANGES: [&str; 5] =
        ["--append", "--append-if-missing", "--delete", "--delete-if-present", "--replace"];
    let given = Arguments::parse(words, &["--unchanged-exit-77"], &CHANGES)?.without_operands()?;
    let system = System::open()?;
    let pending = system.pending();
    let existing = sysroot::options(&pending)?;
    if !given.has(&CHANGES) {
        println!("{existing}");
        return Ok(());
    }
    power::moment("before the kernel arguments are changed");
    let arguments = KernelArgs::from_string(&existing);
    let before: Vec<String> = arguments.to_strv().iter().map(ToString::to_string).collect();
    let mut is_changed = false;
    // In the order of the real program, which is not that of the command line.
    for word in given.values("--delete") {
        arguments.delete(&word)?;
        is_changed = true;
    }
    for word in given.values("--replace") {
        arguments.new_replace(&word)?;
        is_changed = true;
    }
    for word in given.values("--append") {
        arguments.append(&word);
        is_changed = true;
    }
    for word in given.values("--append-if-missing") {
        if !arguments.to_strv().iter().any(|have| have.as_str() == word) {
            arguments.append(&word);
            is_changed = true;
        }
    }
    for word in given.values("--delete-if-present") {
        if before.contains(&word) {
            arguments.delete(&word)?;
            is_changed = true;
        }
    }
    if !is_changed {
        println!("No changes.");
        if given.has(&["--unchanged-exit-77"]) {
            std::process::exit(77);
        }
        return Ok(());
    }
    system.stage(&pending.csum(), &Origin::of(&pending)?, &arguments)?;
    println!("Kernel arguments updated.\nRun \"systemctl reboot\" to start a reboot");
    Ok(())
}

fn rebase(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &["--experimental"], &[])?;
    let [target] = given.operands.as_slice() else { bail!("REFSPEC must be specified") };
    let system = System::open()?;
    power::moment("before an image is pulled");
    let pending = system.pending();
    let old = Origin::of(&pending)?;
    ensure!(old.image != *target, "Old and new refs are equal: {target}");
    deploy(&system, &pending, &Origin { image: target.clone(), ..old })
}

/// Stages what an origin asks for, with the kernel arguments of the pending deployment.
fn deploy(system: &System, pending: &Deployment, origin: &Origin) -> anyhow::Result<()> {
    let old = Origin::of(pending)?;
    let image = if old.image == origin.image {
        layers::base(&system.repo, &pending.csum())?
    } else {
        println!("Pulling manifest: {}", origin.image);
        registry::pull_image(&system.repo, &origin.image)?
    };
    let commit = layers::assemble(&system.repo, &image, origin)?;
    let arguments = KernelArgs::from_string(&sysroot::options(pending)?);
    system.stage(&commit, origin, &arguments)?;
    println!("Staging deployment...done\nRun \"systemctl reboot\" to start a reboot");
    Ok(())
}

fn clean_up(words: &[String]) -> anyhow::Result<()> {
    let flags =
        ["-p", "--pending", "-r", "--rollback", "-b", "--base", "-m", "--repomd", "-pr", "-rp"];
    let given = Arguments::parse(words, &flags, &[])?.without_operands()?;
    ensure!(given.has(&flags), "cleanup: At least one cleanup option must be specified");
    let (pending, rollback) = (
        given.has(&["-p", "--pending", "-pr", "-rp"]),
        given.has(&["-r", "--rollback", "-pr", "-rp"]),
    );
    let system = System::open()?;
    let mut is_after = false;
    let mut kept = Vec::new();
    let all = system.sysroot.deployments();
    for deployment in &all {
        let is_booted = deployment.equal(&system.booted);
        is_after |= is_booted;
        let is_removed = if is_after { rollback } else { pending };
        if is_booted || deployment.is_pinned() || !is_removed {
            kept.push(Clone::clone(deployment));
        }
    }
    if kept.len() == all.len() {
        println!("Deployments unchanged.");
        return Ok(());
    }
    system.write(&kept)
}

fn roll_back(words: &[String]) -> anyhow::Result<()> {
    Arguments::parse(words, &[], &[])?.without_operands()?;
    let system = System::open()?;
    let os = system.booted.osname();
    let (pending, rollback) = system.sysroot.query_deployments_for(Some(&os));
    let first = match (pending, rollback) {
        (None, None) => bail!("No rollback deployment found"),
        (Some(pending), _) if pending.is_staged() => {
            bail!("Staged deployment (remove with cleanup -p)")
        }
        (_, Some(rollback)) => rollback,
        (Some(_), None) => Clone::clone(&system.booted),
    };
    println!("Moving '{}.{}' to be first deployment", first.csum(), first.deployserial());
    let mut order = vec![Clone::clone(&first)];
    order.extend(system.sysroot.deployments().into_iter().filter(|it| !it.equal(&first)));
    system.write(&order)?;
    println!("Next boot: {}", status::id(&first));
    Ok(())
}

const LAYERING: [&str; 2] = ["--install", "--uninstall"];

fn update(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &[], &LAYERING)?.without_operands()?;
    relayer(&given.values("--install"), &given.values("--uninstall"), |_| Ok(()))
}

fn install(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &[], &["--uninstall"])?;
    ensure!(!given.operands.is_empty(), "At least one PACKAGE must be specified");
    relayer(&given.operands, &given.values("--uninstall"), |_| Ok(()))
}

fn uninstall(words: &[String]) -> anyhow::Result<()> {
    let given = Arguments::parse(words, &[], &["--install"])?;
    ensure!(!given.operands.is_empty(), "At least one PACKAGE must be specified");
    relayer(&given.values("--install"), &given.operands, |_| Ok(()))
}

fn overrides(words: &[String]) -> anyhow::Result<()> {
    let (command, rest) = words.split_first().context("No command specified")?;
    let flags: &[&str] = if command == "reset" { &["--all", "-a"] } else { &[] };
    let given = Arguments::parse(rest, flags, &LAYERING)?;
    let names = &given.operands;
    let is_all = given.has(&["--all", "-a"]);
    ensure!(is_all || !names.is_empty(), "At least one PACKAGE must be specified");
    let (add, drop) = (given.values("--install"), given.values("--uninstall"));
    match command.as_str() {
        "remove" => relayer(&add, &drop, |origin| {
            for name in names {
                ensure!(
                    !origin.removals.contains(name),
                    "Override already exists for package '{name}'"
                );
                origin.removals.push(name.clone());
            }
            origin.removals.sort();
            Ok(())
        }),
        "reset" => relayer(&add, &drop, |origin| {
            for name in names {
                ensure!(origin.removals.contains(name), "No override for package '{name}'");
            }
            origin.removals.retain(|name| !is_all && !names.contains(name));
            Ok(())
        }),
        other => bail!("Unknown \"override\" subcommand \"{other}\""),
    }
}

/// Stages the pending deployment's image with other packages.
fn relayer(
    add: &[String],
    drop: &[String],
    change: impl FnOnce(&mut Origin) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let system = System::open()?;
    power::moment("before packages are installed");
    let pending = system.pending();
    let old = Origin::of(&pending)?;
    let mut origin = old.clone();
    change(&mut origin)?;
    origin.change(add, drop)?;
    if origin == old {
        println!("No upgrade available.");
        return Ok(());
    }
    deploy(&system, &pending, &origin)
}
