//! `mco crds`: prints the custom resource definitions.

use mco_core::lint::suggest;
use std::{io::Write as _, process::ExitCode};

use crate::{error::error_with_hint, load::yaml, print::Screen};

/// Print the custom resource definitions as YAML
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CrdsArgs {
    /// Kind, plural, short name or full name of one definition; all definitions if omitted
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  mco crds | kubectl apply --server-side -f -
  mco crds machineconfigs
  mco crds mcp";

/// Prints one definition or all of them, as documents of one stream.
pub(crate) fn run(args: &CrdsArgs, screen: &mut Screen<'_>) -> anyhow::Result<ExitCode> {
    let mut names = Vec::new();
    let mut printed = 0_usize;
    for crd in mco_api::crds() {
        let own = &crd.spec.names;
        let mut known = vec![own.plural.clone(), own.kind.clone()];
        known.extend(crd.metadata.name.clone());
        known.extend(own.singular.clone());
        known.extend(own.short_names.clone().unwrap_or_default());
        let wanted = args
            .name
            .as_ref()
            .is_none_or(|name| known.iter().any(|known| known.eq_ignore_ascii_case(name)));
        if wanted {
            let separator = if printed == 0 { "" } else { "---\n" };
            write!(screen, "{separator}{}", yaml::write(&crd)?)?;
            printed += 1;
        }
        names.extend(known);
    }
    match &args.name {
        Some(name) if printed == 0 => {
            let hint = match suggest::closest(name, names.iter().map(String::as_str)) {
                Some(meant) => format!("did you mean {meant}?"),
                None => "run `mco crds` to print all definitions".to_owned(),
            };
            Err(error_with_hint(format!("unknown definition {name:?}"), hint))
        }
        Some(_) | None => Ok(ExitCode::SUCCESS),
    }
}
