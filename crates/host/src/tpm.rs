//! The machine's TPM, through the programs of tpm2-tools.

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{os::CommandRunner, root::Root, snapshot, system::SystemError};

/// Device of the kernel's resource manager.
const DEVICE: &str = "/dev/tpmrm0";
const PROGRAM: &str = "/usr/bin/tpm2_createek";

/// Returns the SHA-256 of the TPM's public endorsement key (RSA, as a DER-encoded
/// `SubjectPublicKeyInfo`) in hexadecimal; none if the machine has no TPM or no tpm2-tools.
pub(crate) fn endorsement_key(
    root: &Root,
    runner: &dyn CommandRunner,
) -> Result<Option<String>, SystemError> {
    let has_all = root.stat(DEVICE)?.is_some() && root.stat(PROGRAM)?.is_some();
    has_all.then(|| hash_of_key(runner)).transpose()
}

fn hash_of_key(runner: &dyn CommandRunner) -> Result<String, SystemError> {
    // A TPM derives the key from its seed by a fixed template: it is the same each time, and nothing
    // is stored.
    let key = ["--ek-context=/dev/null", "--key-algorithm=rsa"];
    let output = ["--public=/dev/stdout", "--format=pem"];
    let command = [&[PROGRAM][..], &key, &output].concat();
    let pem = runner.run(&command)?;
    hash_of_pem(&pem).ok_or_else(|| SystemError::Command {
        command: command.join(" "),
        fault: "the output is not a public key in PEM".to_owned(),
    })
}

fn hash_of_pem(pem: &str) -> Option<String> {
    let (_, rest) = pem.split_once("-----BEGIN PUBLIC KEY-----")?;
    let (text, _) = rest.split_once("-----END PUBLIC KEY-----")?;
    let text: String = text.split_ascii_whitespace().collect();
    let key = BASE64_STANDARD.decode(text).ok().filter(|key| !key.is_empty())?;
    Some(snapshot::hash(&key))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write as _,
        path::Path,
        process::{Command, Stdio},
    };

    use super::*;

    /// A simulated TPM that ends with its value.
    struct Tpm {
        folder: tempfile::TempDir,
        process: std::process::Child,
    }

    impl Tpm {
        /// Returns none if the programs are not installed.
        fn start() -> Option<Self> {
            for program in ["/usr/bin/swtpm", PROGRAM, "/usr/bin/openssl"] {
                if !Path::new(program).exists() {
                    writeln!(std::io::stderr(), "skipped: {program} is not installed").unwrap();
                    return None;
                }
            }
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name).display().to_string();
            let mut command = Command::new("swtpm");
            command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
            command.arg("--tpmstate").arg(format!("dir={}", folder.path().display()));
            command.arg("--ctrl").arg(format!("type=unixio,path={}", at("tpm.ctrl")));
            command.arg("--server").arg(format!("type=unixio,path={}", at("tpm")));
            let process = command.stdin(Stdio::null()).spawn().unwrap();
            Some(Self { folder, process })
        }

        fn connection(&self) -> String {
            format!("swtpm:path={}", self.folder.path().join("tpm").display())
        }
    }

    impl Drop for Tpm {
        fn drop(&mut self) {
            // Fails if it has ended.
            drop(self.process.kill());
            drop(self.process.wait());
        }
    }

    impl CommandRunner for Tpm {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            let output = Command::new(command[0])
                .args(&command[1..])
                .env("TPM2TOOLS_TCTI", self.connection())
                .output()
                .unwrap();
            let fault = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                return Ok(String::from_utf8(output.stdout).unwrap());
            }
            Err(SystemError::Command { command: command.join(" "), fault })
        }
    }

    fn machine(paths: &[&str]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        for path in paths {
            let path = folder.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        (folder, root)
    }

    /// Returns the hash as an administrator computes it on the machine.
    fn hash_by_openssl(tpm: &Tpm) -> String {
        let script = "tpm2_createek -c /dev/null -G rsa -u \"$0/ek.pem\" -f pem \
                      && openssl pkey -pubin -in \"$0/ek.pem\" -outform der | sha256sum";
        let folder = tpm.folder.path().display().to_string();
        let text = tpm.run(&["/bin/sh", "-c", script, &folder]).unwrap();
        text.split_whitespace().next().unwrap().to_owned()
    }

    #[test]
    fn the_endorsement_key_is_the_same_each_time_and_another_on_another_tpm() {
        let (Some(tpm), Some(other)) = (Tpm::start(), Tpm::start()) else { return };
        // swtpm creates its socket a moment after its start.
        for tpm in [&tpm, &other] {
            let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
            while !tpm.folder.path().join("tpm").exists() {
                assert!(std::time::Instant::now() < deadline, "swtpm does not listen");
                std::thread::yield_now();
            }
        }
        let (_folder, root) = machine(&[DEVICE, PROGRAM]);
        let hash = endorsement_key(&root, &tpm).unwrap().unwrap();
        assert_eq!(hash, hash_by_openssl(&tpm));
        assert_eq!(hash, endorsement_key(&root, &tpm).unwrap().unwrap());
        assert_ne!(hash, endorsement_key(&root, &other).unwrap().unwrap());
    }

    /// Fails the test if a command is run.
    struct Nothing(&'static str);

    impl CommandRunner for Nothing {
        fn run(&self, command: &[&str]) -> Result<String, SystemError> {
            assert!(!self.0.is_empty(), "{command:?} ran");
            Ok(self.0.to_owned())
        }
    }

    #[test]
    fn a_machine_without_tpm_or_tools_has_no_key_and_a_broken_output_is_an_error() {
        for paths in [&[][..], &[DEVICE], &[PROGRAM]] {
            let (_folder, root) = machine(paths);
            assert_eq!(endorsement_key(&root, &Nothing("")).unwrap(), None);
        }
        let (_folder, root) = machine(&[DEVICE, PROGRAM]);
        let broken = ["ERROR", "-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n"];
        for text in broken {
            let error = endorsement_key(&root, &Nothing(text)).unwrap_err().to_string();
            assert!(error.contains("tpm2_createek"), "{error}");
        }
    }
}
