//! `mco render`: renders the config of a pool from manifests.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use mco_api::{MachineConfig, annotation};
use mco_core::lint::Pool;
use mco_core::render::{Origin, OsImage, Rendered};
use mco_host::Root;

use crate::{
    decoded::{self, DecodedConfig, UNITS},
    error::error_with_hint,
    load::{Sources, manifests::ManifestsExt as _, yaml},
    print::{self, Screen},
};

/// Render pools from manifests and print the name, the object or the files
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    sources: Sources,
    /// Pool to render; all pools if omitted
    #[arg(long, short, value_name = "POOL")]
    pool: Option<String>,
    /// Output format; files are written to the directory given with --to
    #[arg(long, short, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// Directory to write files and units to; created if missing
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  mco render -f manifests/                             the names of all rendered configs
  mco render -f manifests/ --pool worker -o yaml       the rendered MachineConfig
  mco render -f manifests/ --pool worker --to /tmp/w   its files, as on a node
  kubectl get mc,mcp,controllerconfig -o yaml | mco render -f - --pool worker

Without a MachineConfigPool in the input, pools are assumed from the role labels. With the
ControllerConfig of a cluster in the input, the name is the same as in that cluster.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Name,
    Yaml,
    Json,
    Files,
}

/// Prints to `screen`, or writes files to the directory of `--to`.
pub(crate) fn run(
    args: &RenderArgs,
    verbose: bool,
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let output =
        args.output.unwrap_or(if args.to.is_some() { Output::Files } else { Output::Name });
    let manifests = args.sources.load()?.into_manifests().or_refuse()?;
    manifests.print_notes(verbose);
    let rendered = manifests.render_all(args.pool.as_deref())?;
    for (pool, rendered) in &rendered {
        refuse_oversize(pool, rendered)?;
    }
    match (output, &args.to) {
        (Output::Files, Some(directory)) => {
            let single = args.pool.is_some();
            for (pool, rendered) in rendered {
                let to =
                    if single { directory.clone() } else { directory.join(pool.name.as_str()) };
                unpack(rendered, &to, screen)?;
            }
        }
        (Output::Files, None) => {
            return Err(error_with_hint("-o files requires a directory", "add --to DIR"));
        }
        (Output::Name | Output::Yaml | Output::Json, Some(_)) => {
            return Err(error_with_hint("--to requires -o files", "omit -o or --to"));
        }
        (Output::Name, None) => {
            for (_, rendered) in &rendered {
                writeln!(screen, "{}", rendered.name)?;
            }
        }
        (Output::Yaml, None) => {
            for (index, object) in objects(rendered).iter().enumerate() {
                let separator = if index == 0 { "" } else { "---\n" };
                write!(screen, "{separator}{}", yaml::write(object)?)?;
            }
        }
        (Output::Json, None) => write_json(&objects(rendered), screen)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn refuse_oversize(pool: &Pool, rendered: &Rendered) -> anyhow::Result<()> {
    let origin = Origin { controller_version: String::new(), release_version: String::new() };
    let check =
        rendered.object(&pool.value, &origin).and_then(|object| rendered.check_size(&object));
    if let Some(warning) = check.with_context(|| format!("failed to render pool {}", pool.name))? {
        let name = &rendered.name;
        print::note(&format!("{name} has {} bytes, more than 80 % of the limit", warning.size));
    }
    Ok(())
}

/// Returns the objects in a form to apply: without owner, which only the cluster knows.
fn objects(rendered: Vec<(&Pool, Rendered)>) -> Vec<MachineConfig> {
    let object = |(_, rendered): (&Pool, Rendered)| {
        let mut object = MachineConfig::new(rendered.name.as_str(), rendered.spec);
        if rendered.os_image == OsImage::Overridden {
            let annotations = object.metadata.annotations.get_or_insert_default();
            annotation::OS_IMAGE_URL_OVERRIDDEN.set(annotations, &true);
        }
        object
    };
    rendered.into_iter().map(object).collect()
}

fn write_json(objects: &[MachineConfig], screen: &mut Screen<'_>) -> anyhow::Result<()> {
    if let [only] = objects {
        serde_json::to_writer_pretty(&mut *screen, only)?;
    } else {
        let list = serde_json::json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        serde_json::to_writer_pretty(&mut *screen, &list)?;
    }
    writeln!(screen)?;
    Ok(())
}

/// Writes files, units and drop-ins below `directory`, as the daemon does below `/`.
fn unpack(rendered: Rendered, directory: &Path, screen: &mut Screen<'_>) -> anyhow::Result<()> {
    let config = DecodedConfig::new(rendered.name.to_string(), rendered.spec)?;
    let root = Root::create(directory)?;
    let mut count = 0_usize;
    for file in &config.config.storage.files {
        let bytes = decoded::contents(file)
            .with_context(|| format!("failed to decode the contents of {}", file.path))?;
        let mode = file.mode.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644);
        root.write(&file.path, &bytes, mode)?;
        count += 1;
    }
    for unit in &config.config.systemd.units {
        let path = format!("{UNITS}{}", unit.name);
        if let Some(contents) = &unit.contents {
            root.write(&path, contents.as_bytes(), 0o644)?;
            count += 1;
        }
        for dropin in &unit.dropins {
            let contents = dropin.contents.as_deref().unwrap_or_default();
            root.write(&format!("{path}.d/{}", dropin.name), contents.as_bytes(), 0o644)?;
            count += 1;
        }
    }
    writeln!(screen, "{}: {count} files in {}", config.name, directory.display())?;
    Ok(())
}
