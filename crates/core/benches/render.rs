//! Benchmark of rendering a pool, compared with a lower bound.
//!
//! The lower bound is work that no renderer can avoid: parse the same bytes as JSON and serialize
//! them. The inputs are a pool's base configs, and the same with 60 user configs; they are read
//! from `../shared/bench`, or generated in the same sizes if that directory does not exist.

use std::{fs, hint::black_box, path::Path};

use criterion::Criterion;
use mco_api::{MachineConfig, MachineConfigSpec, PoolName, RawConfig, label};
use mco_core::render::{self, BaseImages};
use peak_alloc::PeakAlloc;
use serde::Deserialize;
use serde_json::Value;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

#[derive(Deserialize)]
struct Recorded {
    pool: PoolName,
    configs: Vec<MachineConfig>,
}

struct Input {
    name: &'static str,
    bytes: Vec<u8>,
    pool: PoolName,
    configs: Vec<MachineConfig>,
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    for input in inputs() {
        let mut group = criterion.benchmark_group(input.name);
        group.bench_function("render", |bencher| bencher.iter(|| render(&input)));
        group.bench_function("floor", |bencher| {
            bencher.iter(|| {
                let value: Value = serde_json::from_slice(&input.bytes).expect("JSON");
                serde_json::to_vec(black_box(&value)).expect("JSON")
            });
        });
        group.finish();
        report_memory(&input);
    }
    criterion.final_summary();
}

fn render(input: &Input) -> render::Rendered {
    let configs: Vec<&MachineConfig> = input.configs.iter().collect();
    let images = BaseImages { os: "os".to_owned(), extensions: "extensions".to_owned() };
    render::pool(&input.pool, black_box(&configs), &images).expect("the inputs render")
}

#[expect(clippy::print_stdout, reason = "a benchmark prints its results")]
fn report_memory(input: &Input) {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    drop(render(input));
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    let hundredths = peak * 100 / input.bytes.len();
    println!(
        "{}: peak memory {peak} bytes above the input's {}, {}.{:02} times it",
        input.name,
        input.bytes.len(),
        hundredths / 100,
        hundredths % 100,
    );
}

fn inputs() -> [Input; 2] {
    [
        recorded("base", "01-templates.json").unwrap_or_else(|| made_up("base", 0)),
        recorded("base-plus-60", "02-templates-plus-60.json")
            .unwrap_or_else(|| made_up("base-plus-60", 60)),
    ]
}

#[expect(clippy::disallowed_methods, reason = "reads benchmark data; nothing ships this")]
fn recorded(name: &'static str, file: &str) -> Option<Input> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/bench");
    let bytes = fs::read(folder.join(file)).ok()?;
    let Recorded { pool, configs } = serde_json::from_slice(&bytes).expect("a recorded input");
    Some(Input { name, bytes, pool, configs })
}

/// Generates about 200 kB of base configs, and about 16 kB per user config.
fn made_up(name: &'static str, users: usize) -> Input {
    let mut configs: Vec<MachineConfig> =
        (0..10).map(|index| config(&format!("{index:02}-base"), 12, 1_600)).collect();
    configs.extend((0..users).map(|index| config(&format!("50-user-{index:02}"), 4, 4_000)));
    let bytes = serde_json::to_vec(&configs).expect("JSON");
    Input { name, bytes, pool: "worker".parse().expect("a name"), configs }
}

fn config(name: &str, files: usize, size: usize) -> MachineConfig {
    let line = "%23%20A%20line%20of%20a%20file%20as%20people%20write%20them%0A";
    let contents = line.repeat(size / line.len());
    let files: Vec<String> = (0..files)
        .map(|index| {
            format!(
                r#"{{"path":"/etc/{name}/{index}","mode":420,"contents":{{"source":"data:,{contents}"}}}}"#
            )
        })
        .collect();
    let json = format!(
        r#"{{"ignition":{{"version":"3.5.0"}},"storage":{{"files":[{}]}}}}"#,
        files.join(",")
    );
    let spec = MachineConfigSpec {
        config: Some(RawConfig::from_json(json).expect("JSON")),
        ..MachineConfigSpec::default()
    };
    let mut config = MachineConfig::new(name, spec);
    config.metadata.labels = Some([(label::ROLE.to_owned(), "worker".to_owned())].into());
    config
}
