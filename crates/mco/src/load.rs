//! Reads manifests: files, directories and standard input, YAML and JSON, one object or many.
//!
//! Every object keeps its text and positions, so that a fault can name file, line and column. A
//! fault of one file does not hide the faults of the next.

mod json;
mod kustomize;
pub(crate) mod manifests;
mod url;
pub(crate) mod yaml;

use mco_core::lint::{
    Fault, FieldPath, Location, Manifests, Object, Position, SourceFile, SpannedValue, object,
};
use mco_host::input::{self, Descend, InputError};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{FaultsError, error_with_hint},
    load::yaml::SyntaxError,
};

/// Maximum size of a file. Far above the limit of etcd, so that only a wrong path exceeds it.
pub(crate) const MAX_FILE_SIZE: u64 = 64 * 1024 * 1024;

const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The manifests
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Sources {
    /// File or directory with manifests, or - for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

/// The manifests of a command that changes a cluster
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct ChangeSources {
    /// File or directory with manifests, URL of a file, or - for standard input; may be repeated
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Kustomize folder
    #[arg(short = 'k', long = "kustomize", value_name = "DIR", conflicts_with = "paths")]
    pub(crate) kustomize: Option<PathBuf>,
    /// Read subdirectories too
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

impl ChangeSources {
    /// Returns true if no manifests are given.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.kustomize.is_none()
    }

    /// Reads all manifests; fails if one is invalid or has no name.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        let loaded = match &self.kustomize {
            Some(folder) => kustomize::read(folder)?,
            None => self.read_paths()?,
        };
        if loaded.faults.iter().any(Fault::is_error) {
            return Err(anyhow::Error::new(FaultsError(loaded.faults)));
        }
        if let Some(unnamed) = loaded.objects.iter().find(|object| object.name.is_empty()) {
            let fault = Fault::error("NoName", "the object has no metadata.name");
            let path = FieldPath::of("metadata");
            return Err(anyhow::Error::new(FaultsError(vec![unnamed.fault_at(&path, fault)])));
        }
        Ok(loaded)
    }

    fn read_paths(&self) -> anyhow::Result<Loaded> {
        let mut loaded = Loaded::default();
        for path in &self.paths {
            if let Some(url) = url::of(path) {
                loaded.read_bytes(path, url::fetch(url)?);
            } else {
                let (paths, recursive) = (vec![path.clone()], self.recursive);
                loaded.extend(Sources { paths, recursive }.load()?);
            }
        }
        Ok(loaded)
    }
}

/// The objects and faults of the input.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) objects: Vec<Object>,
    pub(crate) faults: Vec<Fault>,
}

impl Sources {
    /// Reads all paths; fails only if a path cannot be read.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        let mut loaded = Loaded::default();
        for path in &self.paths {
            for file in self.files(path)? {
                loaded.read(&file)?;
            }
        }
        Ok(loaded)
    }

    fn files(&self, path: &Path) -> anyhow::Result<Vec<PathBuf>> {
        refuse_url(path)?;
        if is_stdin(path) || !input::is_directory(path)? {
            return Ok(vec![path.to_owned()]);
        }
        let descend = if self.recursive { Descend::Yes } else { Descend::No };
        let files = input::files_in(path, &EXTENSIONS, descend)?;
        if files.is_empty() {
            return Err(error_with_hint(
                format!("{} contains no .yaml, .yml or .json file", path.display()),
                "name another directory, or add -R to read subdirectories",
            ));
        }
        Ok(files)
    }
}

/// Parses the objects in bytes that were read from `path`.
pub(crate) fn text(path: &Path, bytes: Vec<u8>) -> Loaded {
    let mut loaded = Loaded::default();
    loaded.read_bytes(path, bytes);
    loaded
}

/// Reads the bytes of a file, or of standard input for `-`.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, InputError> {
    if is_stdin(path) { input::stdin(MAX_FILE_SIZE) } else { input::file(path, MAX_FILE_SIZE) }
}

impl Loaded {
    /// Sorts the objects by kind.
    pub(crate) fn into_manifests(self) -> Manifests {
        Manifests::new(self.objects, self.faults)
    }

    /// Adds the objects and faults of another input.
    pub(crate) fn extend(&mut self, other: Self) {
        self.objects.extend(other.objects);
        self.faults.extend(other.faults);
    }

    fn read(&mut self, path: &Path) -> anyhow::Result<()> {
        self.read_bytes(path, bytes(path)?);
        Ok(())
    }

    fn read_bytes(&mut self, path: &Path, bytes: Vec<u8>) {
        let name = if is_stdin(path) { "<stdin>".into() } else { path.display().to_string() };
        match utf8(bytes) {
            Ok(text) => self.read_text(SourceFile { name: name.into(), text }, is_json(path)),
            Err(error) => self.faults.push(syntax_fault(&name.into(), error)),
        }
    }

    fn read_text(&mut self, file: SourceFile, json: bool) {
        match documents(&file.text, json) {
            Ok(documents) => {
                let file = Arc::new(file);
                for document in documents {
                    object::collect(&file, document, &mut self.objects, &mut self.faults);
                }
            }
            Err(error) => self.faults.push(syntax_fault(&file.name, error)),
        }
    }
}

fn syntax_fault(file: &Arc<str>, error: SyntaxError) -> Fault {
    let mut fault = Fault::error("Syntax", error.message);
    fault.location = Some(Location { file: Arc::clone(file), at: error.at });
    fault.hint = error.hint.map(str::to_owned);
    fault
}

fn documents(text: &str, json: bool) -> Result<Vec<SpannedValue>, SyntaxError> {
    if json {
        return json::read(text);
    }
    // A YAML flow mapping starts like a JSON object.
    let looks_like_json = text.trim_start().starts_with('{');
    match looks_like_json.then(|| json::read(text)) {
        Some(Ok(documents)) => Ok(documents),
        Some(Err(_)) | None => yaml::read(text),
    }
}

fn utf8(bytes: Vec<u8>) -> Result<String, SyntaxError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let before = error.utf8_error().valid_up_to();
        let good = error.as_bytes().get(..before).unwrap_or_default();
        let lines = good.split(|byte| *byte == b'\n');
        let (line, last) = lines.fold((0, 0), |(count, _), line| (count + 1, line.len()));
        SyntaxError {
            at: Some(Position { line, column: last + 1 }),
            message: "not UTF-8 text".to_owned(),
            hint: Some("save the file as UTF-8; encode binary contents as a base64 data URL"),
        }
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn refuse_url(path: &Path) -> anyhow::Result<()> {
    match url::of(path) {
        Some(text) => Err(error_with_hint(
            format!("{text} is a URL, and manifests are read from files only"),
            format!("download the file: curl -fsSL {text} | mco … -f -"),
        )),
        None => Ok(()),
    }
}
