//! `rpm`: a package is a file of its name below `/usr/share/packages`.

use std::path::Path;

use anyhow::bail;

/// Folder with a file for each package.
pub(crate) const PACKAGES: &str = "usr/share/packages";

pub(crate) fn run(words: &[String]) -> anyhow::Result<()> {
    match words {
        [query, name] if query == "-q" => {
            if !Path::new("/").join(PACKAGES).join(name).exists() {
                println!("package {name} is not installed");
                std::process::exit(1);
            }
            println!("{name}-1-1.x86_64");
        }
        // No file of the image belongs to a package: the image itself is the answer.
        [query, path] if query == "-qf" => {
            println!("file {path} is not owned by any package");
            std::process::exit(1);
        }
        words => bail!("unknown arguments: {words:?}"),
    }
    Ok(())
}
