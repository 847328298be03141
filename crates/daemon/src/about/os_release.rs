//! What kind of operating system an os-release file names.

/// What an os-release file says, as far as anybody asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// The system.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Whether it is made from an image of the CoreOS kind.
    pub is_core_os: bool,
    /// Whether it is of the Enterprise Linux kind of CoreOS.
    pub is_enterprise_core_os: bool,
}

impl OsRelease {
    /// Reads the text of an os-release file.
    ///
    /// Compat: the rules are the reference's (`pkg/daemon/osrelease`), save that a bare `9` counts for
    /// nothing more than what it is.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let value = |key: &str| {
            let mut lines = text.lines().filter_map(|line| line.trim().split_once('='));
            let found = lines.find(|(name, _)| *name == key);
            found.map(|(_, value)| value.trim_matches(['"', '\'']).to_owned()).unwrap_or_default()
        };
        let (id, variant) = (value("ID"), value("VARIANT_ID"));
        let is_core_os_variant = variant == "coreos";
        let is_enterprise_core_os = matches!(id.as_str(), "rhcos" | "scos")
            || (matches!(id.as_str(), "rhel" | "centos") && is_core_os_variant);
        let version =
            version(&value("RHEL_VERSION"), &value("OPENSHIFT_VERSION"), &value("VERSION"));
        Self {
            version: version.unwrap_or_else(|| value("VERSION_ID")),
            is_core_os: is_core_os_variant || is_enterprise_core_os,
            is_enterprise_core_os,
            id,
        }
    }
}

fn version(rhel: &str, openshift: &str, whole: &str) -> Option<String> {
    if !rhel.is_empty() {
        return Some(rhel.to_owned());
    }
    if openshift.is_empty() {
        return None;
    }
    let begin = format!("{}.", openshift.replace('.', ""));
    whole.strip_prefix(&begin).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: C12
    #[test]
    fn systems_are_told_apart_as_the_reference_does() {
        let cases = [
            (
                "ID=\"rhcos\"\nVERSION=\"412.86.202301\"\nVERSION_ID=\"4.12\"\nOPENSHIFT_VERSION=\"4.12\"\nRHEL_VERSION=\"8.6\"\nVARIANT_ID=coreos",
                ("rhcos", "8.6", true, true),
            ),
            (
                "ID=\"rhcos\"\nVERSION=\"414.92.2023\"\nVERSION_ID=\"4.14\"\nOPENSHIFT_VERSION=\"4.14\"",
                ("rhcos", "92.2023", true, true),
            ),
            ("ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=\"9.6\"", ("rhel", "9.6", true, true)),
            ("ID=rhel\nVARIANT_ID=coreos\nVERSION_ID=\"10.0\"", ("rhel", "10.0", true, true)),
            ("ID=\"scos\"\nVERSION_ID=\"9\"", ("scos", "9", true, true)),
            ("ID=centos\nVARIANT_ID=coreos\nVERSION_ID=9", ("centos", "9", true, true)),
            ("ID=fedora\nVARIANT_ID=coreos\nVERSION_ID=41", ("fedora", "41", true, false)),
            ("ID=\"rhel\"\nVERSION_ID=\"8.9\"", ("rhel", "8.9", false, false)),
            ("ID=debian\nVERSION_ID=\"13\"", ("debian", "13", false, false)),
            ("", ("", "", false, false)),
        ];
        for (text, (id, version, core_os, enterprise)) in cases {
            let want = OsRelease {
                id: id.to_owned(),
                version: version.to_owned(),
                is_core_os: core_os,
                is_enterprise_core_os: enterprise,
            };
            assert_eq!(OsRelease::read(text), want, "{text}");
        }
    }
}
