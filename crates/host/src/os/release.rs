//! The operating system of a machine, from its os-release file.
//!
//! Compat: versions and families are told apart as in the reference (`pkg/daemon/osrelease`).

use crate::root::{Root, RootError};

/// Paths of os-release; the first match counts.
const PATHS: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// A parsed os-release file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease {
    id: String,
    like: Vec<String>,
    variant: String,
    version: String,
}

impl OsRelease {
    /// Reads os-release of the system below `root`; none if it does not exist.
    pub fn read(root: &Root) -> Result<Option<Self>, RootError> {
        for path in PATHS {
            if let Some(bytes) = root.read(path)? {
                return Ok(Some(Self::parse(&String::from_utf8_lossy(&bytes))));
            }
        }
        Ok(None)
    }

    /// Parses an os-release file.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let value = |key: &str| {
            let line = text.lines().rev().find_map(|line| {
                line.trim().strip_prefix(key).and_then(|rest| rest.strip_prefix('='))
            });
            line.unwrap_or_default().trim().trim_matches(['"', '\'']).to_owned()
        };
        Self {
            id: value("ID"),
            like: value("ID_LIKE").split_whitespace().map(str::to_owned).collect(),
            variant: value("VARIANT_ID"),
            version: version(&value),
        }
    }

    /// Returns true for any `CoreOS`, whose `/usr` is an image.
    #[must_use]
    pub(crate) fn is_coreos(&self) -> bool {
        self.variant == "coreos" || self.is_el_coreos()
    }

    /// Returns true for a `CoreOS` that is based on Enterprise Linux.
    #[must_use]
    pub(crate) fn is_el_coreos(&self) -> bool {
        match self.id.as_str() {
            "rhcos" | "scos" => true,
            "rhel" | "centos" => self.variant == "coreos",
            _ => false,
        }
    }

    /// Returns true for a `CoreOS` that is based on this major version of Enterprise Linux.
    #[must_use]
    pub(crate) fn is_el(&self, major: u32) -> bool {
        self.is_el_coreos() && self.major() == Some(major)
    }

    /// Returns the version, without the part of the `OpenShift` release.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the major version.
    #[must_use]
    pub fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }

    /// Returns the minor version.
    #[must_use]
    pub fn minor(&self) -> Option<u32> {
        self.version.split('.').nth(1)?.parse().ok()
    }

    /// Returns the name, as metrics have it.
    #[must_use]
    pub fn label(&self) -> String {
        self.id.to_uppercase()
    }
}

fn version(value: &dyn Fn(&str) -> String) -> String {
    let rhel = value("RHEL_VERSION");
    if !rhel.is_empty() {
        return rhel;
    }
    // Such as 412.86.202301061548-0 on release 4.12.
    let release = value("OPENSHIFT_VERSION").replace('.', "");
    let whole = value("VERSION");
    let rest = whole.strip_prefix(&release).and_then(|rest| rest.strip_prefix('.'));
    match rest.filter(|_| !release.is_empty()) {
        Some(rest) => rest.to_owned(),
        None => value("VERSION_ID"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C12
    #[test]
    fn systems_are_told_apart_by_os_release() {
        let cases = [
            (
                "ID=\"rhcos\"\nVERSION=\"412.86.202301061548-0\"\nVERSION_ID=\"4.12\"\nOPENSHIFT_VERSION=\"4.12\"\nRHEL_VERSION=\"8.6\"\nVARIANT_ID=coreos",
                ("8.6", true, true, None),
            ),
            (
                "ID=\"rhcos\"\nVERSION=\"416.94.202406251923-0\"\nVERSION_ID=\"4.16\"\nOPENSHIFT_VERSION=\"4.16\"\nRHEL_VERSION=9.4",
                ("9.4", true, true, Some(9)),
            ),
            (
                "ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=\"9.6\"\nID_LIKE=\"fedora\"",
                ("9.6", true, true, Some(9)),
            ),
            ("ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"", ("10.0", true, true, Some(10))),
            (
                "ID=\"scos\"\nOPENSHIFT_VERSION=\"4.14\"\nVERSION=\"414.9.202304041242-0\"\nVERSION_ID=\"4.14\"",
                ("9.202304041242-0", true, true, Some(9)),
            ),
            ("ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=41", ("41", true, false, None)),
            ("ID=\"rhel\"\nVERSION_ID=\"9.4\"\nID_LIKE=\"fedora\"", ("9.4", false, false, None)),
            ("ID=debian\nVERSION_ID=\"12\"", ("12", false, false, None)),
            ("", ("", false, false, None)),
        ];
        for (text, (version, coreos, el, major)) in cases {
            let found = OsRelease::parse(text);
            assert_eq!(found.version(), version, "{text}");
            assert_eq!((found.is_coreos(), found.is_el_coreos()), (coreos, el), "{text}");
            for candidate in [8, 9, 10] {
                let want = major == Some(candidate) || (candidate == 8 && version == "8.6");
                assert_eq!(found.is_el(candidate), want, "{text} {candidate}");
            }
        }
        assert_eq!(OsRelease::parse("ID=fedora").label(), "FEDORA");
    }

    #[test]
    fn the_file_in_etc_has_precedence() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(OsRelease::read(&root).unwrap(), None);
        root.write("/usr/lib/os-release", b"ID=fedora\nVERSION_ID=41\n", 0o644).unwrap();
        assert_eq!(OsRelease::read(&root).unwrap().unwrap().version(), "41");
        root.write("/etc/os-release", b"ID=rhcos\nRHEL_VERSION=9.4\n", 0o644).unwrap();
        assert!(OsRelease::read(&root).unwrap().unwrap().is_el(9));
    }
}
