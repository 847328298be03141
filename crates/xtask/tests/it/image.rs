//! Container images are reproducible, and hold everything that their program needs.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use xtask::image::{Image, Layer, mco, write};

/// Returns a dynamically linked program of this machine: this test.
fn program() -> PathBuf {
    std::env::current_exe().expect("this test is a program")
}

fn packed(image: &Image<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(image, &mut bytes).expect("an image");
    bytes
}

fn tar(words: &[&str], folder: &Path) -> Output {
    let output = Command::new("tar").args(words).current_dir(folder).output().expect("tar runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn two_runs_write_the_same_bytes() {
    let (program, folder) = (program(), tempfile::tempdir().expect("a folder"));
    // A copy has another name and modification time.
    let copy = folder.path().join("copy");
    fs::copy(&program, &copy).expect("a copy");
    assert!(packed(&mco(&program, Layer::Plain)) == packed(&mco(&copy, Layer::Plain)));
}

#[test]
fn a_program_runs_from_nothing_but_its_image_under_every_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = program();
    let archive = folder.path().join("image.tar");
    write(&mco(&program, Layer::Plain), File::create(&archive).expect("a file")).expect("an image");
    tar(&["-xf", "image.tar"], folder.path());
    let blobs = folder.path().join("blobs/sha256");
    let sizes = |entry: &fs::DirEntry| entry.metadata().expect("a file").len();
    let layer = fs::read_dir(&blobs).expect("blobs").flatten().max_by_key(sizes).expect("a layer");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    tar(&["-xf", layer.path().to_str().expect("plain text")], &root);
    let listed = tar(&["-tvf", layer.path().to_str().expect("plain text")], &root);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let processes = ["controller", "daemon", "operator", "server"];
    let names = processes.map(|name| format!("machine-config-{name}"));
    for name in names.into_iter().chain(["apiserver-watcher".to_owned()]) {
        let link = fs::read_link(root.join(format!("usr/bin/{name}")));
        assert_eq!(link.expect("a link"), Path::new("mco"), "{listed}");
    }
    let run = Command::new("chroot").arg(&root).args(["/usr/bin/mco", "--list"]).output();
    match run {
        Ok(run) if run.status.success() => {
            let said = String::from_utf8_lossy(&run.stdout).into_owned();
            assert!(said.contains("two_runs_write_the_same_bytes"), "{said}");
        }
        // Only root may change its root.
        Ok(run) => {
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert!(said.contains("Operation not permitted"), "{said}");
        }
        Err(error) => panic!("chroot does not start: {error}"),
    }
}

#[test]
fn the_image_has_the_allocator_return_freed_memory() {
    let packed = String::from_utf8_lossy(&packed(&mco(&program(), Layer::Plain))).into_owned();
    assert!(packed.contains("MALLOC_TRIM_THRESHOLD_=131072"), "the image config sets it");
}
