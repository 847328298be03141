//! The tree of templates: `<role>/<config>/<layer>/{files,units,extensions}/<name>`.
//!
//! Templates for all roles are in `common`: `common/<layer>/…` for `00-<role>`, and
//! `common/01-kubelet/<layer>/…` for `01-<role>-kubelet`.

use std::{borrow::Cow, collections::BTreeMap};

use super::{TemplateError, built_in};

/// Folder whose templates go into the configs of each role.
const COMMON: &str = "common";

const EXPECTED: &str = "expected ROLE/CONFIG/LAYER/PART/NAME, common/LAYER/PART/NAME or \
    common/NN-NAME/LAYER/PART/NAME, where PART is files, units or extensions, and a drop-in is \
    UNIT.d/FILE.conf in units";

/// The part of a config that a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Files,
    Units,
    Extensions,
}

/// The templates of one config: by part and name, the path in the tree and the text of the template
/// of each layer. The last one that is more than white space applies.
pub(super) type Templates<'t> = BTreeMap<(Part, String), Vec<(&'t str, &'t str)>>;

/// Location of a template in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout<'p> {
    /// Role, or `common`.
    role: &'p str,
    /// Name of the config; without the role, or empty, in `common`.
    config: &'p str,
    layer: &'p str,
    part: Part,
    /// Name of the file in the folder of its part.
    name: &'p str,
}

impl<'p> Layout<'p> {
    fn parse(path: &'p str) -> Option<Self> {
        let (role, rest) = path.split_once('/')?;
        let (config, rest) = match rest.split_once('/')? {
            (config, rest) if role != COMMON || is_numbered(config) => (config, rest),
            _ => ("", rest),
        };
        let (layer, rest) = rest.split_once('/')?;
        let (part, name) = rest.split_once('/')?;
        let part = match part {
            "files" => Part::Files,
            "units" => Part::Units,
            "extensions" => Part::Extensions,
            _ => return None,
        };
        let is_dropin = |(unit, file): (&str, &str)| {
            part == Part::Units
                && unit.strip_suffix(".d").is_some_and(|unit| !unit.is_empty())
                && !file.contains('/')
        };
        let is_plain = name.split_once('/').is_none_or(is_dropin) && !name.ends_with('/');
        let is_whole = [role, layer, name].iter().all(|word| !word.is_empty())
            && (role == COMMON || !config.is_empty());
        (is_plain && is_whole).then_some(Self { role, config, layer, part, name })
    }

    /// Returns the name of the config of `role` that the template is for.
    fn config_of(&self, role: &str) -> String {
        match self.config.split_once('-') {
            None if self.role == COMMON => format!("00-{role}"),
            Some((number, rest)) if self.role == COMMON => format!("{number}-{role}-{rest}"),
            _ => self.config.to_owned(),
        }
    }
}

/// Returns true for `01-kubelet`: two digits, a dash and a name.
fn is_numbered(word: &str) -> bool {
    word.split_once('-').is_some_and(|(number, rest)| {
        number.len() == 2 && number.bytes().all(|c| c.is_ascii_digit()) && !rest.is_empty()
    })
}

/// A tree of templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateTree {
    files: BTreeMap<Cow<'static, str>, Cow<'static, str>>,
}

impl TemplateTree {
    /// Returns the templates of this build.
    #[must_use]
    pub fn built_in() -> Self {
        let files = built_in::FILES.iter();
        let files = files.map(|(path, text)| (Cow::Borrowed(*path), Cow::Borrowed(*text)));
        Self { files: files.collect() }
    }

    /// Builds a tree from paths, relative to its root and separated by slashes, and texts.
    pub fn from_files(
        files: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, TemplateError> {
        let mut tree = Self::default();
        for (path, text) in files {
            if Layout::parse(&path).is_none() {
                return Err(TemplateError::Layout { path, expected: EXPECTED });
            }
            tree.files.insert(Cow::Owned(path), Cow::Owned(text));
        }
        Ok(tree)
    }

    fn layouts(&self) -> impl Iterator<Item = (Layout<'_>, &str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((Layout::parse(path)?, &**path, &**text)))
    }

    /// Returns the roles that have templates, by name.
    #[must_use]
    pub fn roles(&self) -> Vec<&str> {
        let mut roles: Vec<&str> = self.layouts().map(|(layout, ..)| layout.role).collect();
        roles.retain(|role| *role != COMMON);
        // Paths are sorted, so equal roles are neighbours.
        roles.dedup();
        roles
    }

    /// Returns the configs of a role by name, each with the templates that apply. An empty template
    /// removes those of the same name in earlier layers.
    pub(super) fn configs(
        &self,
        role: &str,
        layers: &[Cow<'_, str>],
    ) -> BTreeMap<String, Templates<'_>> {
        let mut configs: BTreeMap<String, Templates<'_>> = BTreeMap::new();
        for layer in layers {
            // The common templates come first, so that those of a role replace them.
            for folder in [COMMON, role] {
                for (layout, path, text) in self.layouts() {
                    if layout.role != folder || layout.layer != *layer {
                        continue;
                    }
                    let key = (layout.part, layout.name.to_owned());
                    let templates = configs.entry(layout.config_of(role)).or_default();
                    if text.is_empty() {
                        templates.remove(&key);
                    } else {
                        templates.entry(key).or_default().push((path, text));
                    }
                }
            }
        }
        configs
    }
}
