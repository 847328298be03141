//! Generated units are linked as by `systemctl --root` itself.

use super::*;

/// Number of generated trees.
const TREES: u64 = 60;
/// Number of calls on each tree.
const CALLS: usize = 4;

const NAMES: [&str; 8] = [
    "a.service",
    "b.service",
    "c.socket",
    "d.mount",
    "t@.service",
    "t@x.service",
    "u@.timer",
    "z.target",
];

const VALUES: [&str; 12] = [
    "m.target",
    "m.target n.target",
    "\"m.target\" 'o.target'",
    "m.target \"broken",
    "",
    "x@.service",
    "%p.target",
    "%i-%j.target",
    "b.service",
    "a.service c.socket",
    "t@.service",
    "q@y.service",
];

const KEYS: [&str; 8] = [
    "WantedBy",
    "WantedBy",
    "RequiredBy",
    "Also",
    "Alias",
    "DefaultInstance",
    "Wanted By",
    "wantedby",
];

/// A sequence of numbers that a seed determines (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }

    fn of<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }

    /// Returns the text of a unit file or a drop-in.
    fn text(&mut self) -> String {
        let mut text = self
            .of(&["", "[Unit]\nDescription=x\n", "\u{feff}", "WantedBy=no.target\n"])
            .to_owned();
        for _ in 0..=self.below(4) {
            text += match self.below(9) {
                0 => "[Service]\n",
                1 => "# a comment \\\n",
                2 => "  ; WantedBy=no.target \\\n",
                3 => "[Install]\nWantedBy=v.target \\\n  w.target\n",
                4 => "WantedBy=v.target \\\n# inside \\\n w.target\n",
                _ => "[Install]\n",
            };
            writeln!(text, "{}={}", self.of(&KEYS), self.of(&VALUES)).unwrap();
        }
        text
    }

    /// Returns the files of a tree.
    fn files(&mut self) -> Vec<(String, String)> {
        let folders = ["/etc/systemd/system", "/usr/lib/systemd/system"];
        let mut files = Vec::new();
        for name in NAMES.iter().filter(|name| **name != "t@x.service") {
            if self.below(6) > 0 {
                files.push((format!("{}/{name}", self.of(&folders)), self.text()));
            }
        }
        for _ in 0..self.below(5) {
            let (folder, name) = (self.of(&folders), self.of(&NAMES));
            let dropin = self.of(&["10.conf", "20.conf", "note.txt"]);
            files.push((format!("{folder}/{name}.d/{dropin}"), self.text()));
        }
        let presets =
            self.of(&["enable *\n", "disable *\n", "enable a*\nenable t@.service\ndisable *\n"]);
        files.push(("/usr/lib/systemd/system-preset/90.preset".to_owned(), presets.to_owned()));
        files
    }
}

fn built(files: &[(String, String)]) -> Tree {
    let pairs: Vec<(&str, &str)> =
        files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    tree(&pairs)
}

/// Compares one call; returns the differences.
fn compare(
    random: &mut Random,
    ours: &Tree,
    theirs: &Tree,
    (verb, name): (&str, &str),
) -> Result<bool, String> {
    let before = (ours.links(), theirs.links());
    let Some(output) = systemctl(theirs.folder.path(), &[verb, name]) else {
        return Ok(false);
    };
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    let done = match verb {
        "enable" => enable(&ours.root, name),
        "disable" => disable(&ours.root, name),
        _ => preset(&ours.root, name),
    };
    if verb == "enable" && done.is_ok() != output.status.success() {
        return Err(format!("{verb} {name}: {done:?}, systemctl: {printed}"));
    }
    if done.is_ok() && ours.links() != theirs.links() {
        let (mine, real) = (ours.links(), theirs.links());
        return Err(format!(
            "{verb} {name}: {}\nours:   {mine}\ntheirs: {real}\n{printed}",
            before.0
        ));
    }
    if done.is_err() {
        // systemctl creates some of the links before it fails.
        return Ok(false);
    }
    for asked in [name, random.of(&NAMES)] {
        let output = systemctl(theirs.folder.path(), &["is-enabled", asked]).unwrap();
        let word = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let found = state(&ours.root, asked).unwrap();
        let is_same = match word.as_str() {
            "" => matches!(found, "not-found" | "bad"),
            word => found == word,
        };
        if !is_same {
            return Err(format!(
                "is-enabled {asked} after {verb} {name}: {found}, systemctl {word}"
            ));
        }
    }
    Ok(true)
}

// covers: C68
#[test]
fn generated_units_are_linked_as_by_systemctl_itself() {
    if systemctl(Path::new("/nonexistent"), &["--version"]).is_none() {
        eprintln!("skipped: there is no systemctl to compare with");
        return;
    }
    let mut faults = Vec::new();
    let mut compared = 0;
    for seed in 0..TREES {
        let mut random = Random(seed);
        let files = random.files();
        let (ours, theirs) = (built(&files), built(&files));
        for _ in 0..CALLS {
            let (verb, name) =
                (random.of(&["enable", "enable", "disable", "preset"]), random.of(&NAMES));
            match compare(&mut random, &ours, &theirs, (verb, name)) {
                Ok(true) => compared += 1,
                Ok(false) => break,
                Err(fault) => {
                    faults.push(format!("seed {seed}: {fault}\n{files:#?}"));
                    break;
                }
            }
        }
    }
    assert!(
        faults.is_empty(),
        "{} of {TREES}\n{}",
        faults.len(),
        faults[..faults.len().min(9)].join("\n")
    );
    assert!(compared > 100, "{compared}");
}

// covers: C68
#[test]
fn an_install_section_counts_in_a_drop_in_and_after_a_comment() {
    let dropin = "/etc/systemd/system/a.service.d/10.conf";
    let tree = tree(&[
        (A, "[Install]\n# once upon a time \\\nWantedBy=m.target\n"),
        (dropin, "[Install]\nWantedBy=n.target\n"),
        ("/usr/lib/systemd/system/a.service.d/10.conf", "[Install]\nWantedBy=hidden.target\n"),
    ]);
    enable(&tree.root, "a.service").unwrap();
    assert_eq!(
        tree.links(),
        "a.service.d/ m.target.wants/ m.target.wants/a.service>/etc/systemd/system/a.service \
         n.target.wants/ n.target.wants/a.service>/etc/systemd/system/a.service"
    );
}

/// Links that systemd creates stay, also if this parser would not create them; links of an earlier
/// `[Install]` section are removed.
#[test]
fn systemd_has_the_last_word_on_a_running_machine() {
    let tree = tree(&[(A, "[Install]\nWantedBy=new.target\n")]);
    let link = |name: &str| tree.root.link(A, &format!("{ETC}/{name}.wants/a.service"));
    link("old.target").unwrap();
    link("unknown-to-us.target").unwrap();
    let mut calls = 0;
    enable_by(&tree.root, "a.service", || {
        calls += 1;
        link("unknown-to-us.target")?;
        link("new.target")
    })
    .unwrap();
    assert_eq!(calls, 2, "again after the removal");
    assert_eq!(
        tree.links(),
        "new.target.wants/ new.target.wants/a.service>/etc/systemd/system/a.service \
         unknown-to-us.target.wants/ \
         unknown-to-us.target.wants/a.service>/etc/systemd/system/a.service"
    );
}
