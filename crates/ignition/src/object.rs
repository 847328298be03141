//! Declaration of Ignition objects, from which decoding, encoding and merging are derived.
//!
//! The rules are those of the reference, and they are the same for all objects:
//!
//! - **decode**: members match by exact name, otherwise ignoring case; unknown members are
//!   ignored; a duplicate member is decoded on top of the first; `null` clears an optional value or
//!   a list and leaves other values unchanged.
//! - **encode**: members are in declaration order; empty members are left out unless declared
//!   `always`; an object is empty if all its members are; an optional value that is set is never
//!   empty.
//! - **merge**: plain values come from the child, optional values if the child sets them, objects
//!   merge member by member unless one side is empty, lists merge by key: see [`crate::merge`].
//!
//! A member declared `since N` does not exist before spec 3.N.

use crate::{
    json::{Node, Value},
    report::{Path, Report, Step},
    spec::Spec,
    tree::Tree,
};

/// A value inside an Ignition document.
pub(crate) trait Field: Default {
    /// Returns true if encoding leaves this value out.
    fn is_empty(&self) -> bool;
    /// Value that is written for an absent one if an older version requires the member.
    const BLANK: Tree<'static>;
    /// Converts this value to a tree for `spec`.
    fn tree(&self, spec: Spec) -> Tree<'_>;
    /// Decodes `node` on top of the present value.
    fn decode(&mut self, node: Node<'_>, decoder: &mut Decoder);
    /// Sets an optional value that is not set to its blank.
    fn fill(&mut self) {}
    /// Merges `child` into this value.
    fn merge(&mut self, child: Self);
    /// Appends `child` to this value; differs from a merge only for lists that declare `append`.
    fn append(&mut self, child: Self) {
        self.merge(child);
    }
}

/// State of decoding one document.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Version that the document declares.
    pub(crate) spec: Spec,
    /// Type errors and unknown members so far.
    pub(crate) report: Report,
    path: Path,
}

impl Decoder {
    pub(crate) fn new(spec: Spec) -> Self {
        Self { spec, report: Report::default(), path: Path::default() }
    }

    /// Runs `decode` with the path extended by `step`.
    pub(crate) fn at(&mut self, step: Step, decode: impl FnOnce(&mut Self)) {
        self.path.0.push(step);
        decode(self);
        self.path.0.pop();
    }

    /// Returns the member of an object that `key` matches, if the document's version has it.
    pub(crate) fn select(
        &mut self,
        key: &str,
        members: &[(&'static str, Flags)],
    ) -> Option<&'static str> {
        let mut known = members.iter().filter(|(name, flags)| self.has(name, *flags));
        let exact = known.clone().find(|(name, _)| *name == key);
        let found = exact.or_else(|| known.find(|(name, _)| same_folded(name, key)));
        match found {
            Some((name, _)) if *name == key => {}
            Some((name, _)) => self.misspelt(key, name),
            None => self.unknown(key),
        }
        found.map(|(name, _)| *name)
    }

    fn has(&self, name: &str, flags: Flags) -> bool {
        // Version 3.0 supports compression only for the contents of files.
        let only_files = self.spec == Spec::V3_0 && name == "compression";
        flags.exists(self.spec) && !(only_files && self.path.is_under(&["ignition"]))
    }

    /// Returns true if the current member is required here although it is optional elsewhere: in
    /// version 3.0 the source of a certificate.
    fn is_plain(&self) -> bool {
        let ends_in_source = matches!(self.path.0.last(), Some(Step::Member("source")));
        let is_certificate = self.path.is_under(&["ignition", "security"]);
        self.spec == Spec::V3_0 && ends_in_source && is_certificate
    }

    /// Reports that the specification has no member `key` here.
    fn unknown(&mut self, key: &str) {
        let path = self.path.unknown(key);
        self.report.warning(path, format!("unused key {key}"));
    }

    /// Reports that `key` differs in case from the member `name` of the specification, which it
    /// matches.
    fn misspelt(&mut self, key: &str, name: &str) {
        let path = self.path.unknown(key);
        self.report.warning(path, format!("key {key} is read as {name}"));
    }

    /// Reports that `found` has another type than `wanted`, which includes an article.
    pub(crate) fn mismatch(&mut self, wanted: &str, found: &Value<'_>) {
        self.report.mismatch(self.path.clone(), wanted, found);
    }
}

/// Returns true if two member names are equal ignoring case, as Go folds it.
pub(crate) fn same_folded(name: &str, key: &str) -> bool {
    if key.is_ascii() {
        return name.eq_ignore_ascii_case(key);
    }
    // Only two letters outside ASCII fold to an ASCII letter: the long s and the Kelvin sign.
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        other => other.to_ascii_lowercase(),
    };
    name.chars().map(fold).eq(key.chars().map(fold))
}

/// Properties of a member besides its name and type.
#[derive(Clone, Copy)]
pub(crate) struct Flags {
    since: Spec,
    always_until: Option<Spec>,
    plain_until: Option<Spec>,
    pointer_until: Option<Spec>,
    pub(crate) append: bool,
}

impl Flags {
    pub(crate) const NONE: Self = Self {
        since: Spec::V3_0,
        always_until: None,
        plain_until: None,
        pointer_until: None,
        append: false,
    };

    /// Declares that the member exists since this version.
    pub(crate) const fn since(self, since: Spec) -> Self {
        Self { since, ..self }
    }

    /// Declares that the member is written even if it is empty.
    pub(crate) const fn always(self) -> Self {
        self.always_until(Spec::V3_5)
    }

    /// Declares that the member is written even if it is empty, up to and including this version.
    pub(crate) const fn always_until(self, last: Spec) -> Self {
        Self { always_until: Some(last), ..self }
    }

    /// Declares that the member was not optional up to and including this version: it is always
    /// written, an absent value reads as the blank, and `null` does not clear it.
    pub(crate) const fn plain_until(self, last: Spec) -> Self {
        Self { always_until: Some(last), plain_until: Some(last), ..self }
    }

    /// Declares that `null` cleared the object up to and including this version.
    pub(crate) const fn pointer_until(self, last: Spec) -> Self {
        Self { pointer_until: Some(last), ..self }
    }

    /// Declares that the list has no keys and merging appends.
    pub(crate) const fn append(self) -> Self {
        Self { append: true, ..self }
    }

    /// Returns true if `spec` has the member.
    pub(crate) fn exists(self, spec: Spec) -> bool {
        self.since <= spec
    }

    /// Decodes `node` into the member.
    pub(crate) fn decode<T: Field>(self, member: &mut T, node: Node<'_>, decoder: &mut Decoder) {
        let is_null = matches!(node.value, Value::Null);
        if is_null && reaches(self.pointer_until, decoder.spec) {
            *member = T::default();
        } else if !(is_null && (reaches(self.plain_until, decoder.spec) || decoder.is_plain())) {
            member.decode(node, decoder);
        }
    }

    /// Sets an absent member to its blank if `spec` has no absent value for it.
    pub(crate) fn fill<T: Field>(self, member: &mut T, spec: Spec) {
        if reaches(self.plain_until, spec) {
            member.fill();
        }
    }

    /// Returns true if `spec` writes the member even if it is empty.
    pub(crate) fn is_always(self, spec: Spec) -> bool {
        reaches(self.always_until, spec)
    }
}

fn reaches(last: Option<Spec>, spec: Spec) -> bool {
    last.is_some_and(|last| spec <= last)
}

/// Declares an object: `field: Type = "wireName" [flag, flag(Version)],`; see [`Flags`].
///
/// `before_merge(f)` names a function that is called with parent and child before their members
/// merge.
macro_rules! object {
    (
        $(#[$meta:meta])*
        pub struct $name:ident $(before_merge($hook:path))? {
            $(
                $(#[$doc:meta])*
                $field:ident: $ty:ty = $wire:literal $([$($flag:ident $(($spec:ident))?),+])?,
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[$doc])* pub $field: $ty, )*
        }

        impl $crate::object::Field for $name {
            fn is_empty(&self) -> bool {
                $( $crate::object::Field::is_empty(&self.$field) )&&*
            }

            const BLANK: $crate::tree::Tree<'static> = $crate::tree::Tree::Object(Vec::new());

            fn tree(&self, spec: $crate::spec::Spec) -> $crate::tree::Tree<'_> {
                let mut members = Vec::new();
                $({
                    const FLAGS: $crate::object::Flags = $crate::object::Flags::NONE
                        $($(.$flag($($crate::spec::Spec::$spec)?))+)?;
                    let wanted = !$crate::object::Field::is_empty(&self.$field)
                        || FLAGS.is_always(spec);
                    if wanted && FLAGS.exists(spec) {
                        members.push(($wire, $crate::object::Field::tree(&self.$field, spec)));
                    }
                })*
                $crate::tree::Tree::Object(members)
            }

            fn decode(
                &mut self,
                node: $crate::json::Node<'_>,
                decoder: &mut $crate::object::Decoder,
            ) {
                const MEMBERS: &[(&str, $crate::object::Flags)] = &[
                    $(($wire, $crate::object::Flags::NONE
                        $($(.$flag($($crate::spec::Spec::$spec)?))+)?)),*
                ];
                let members = match node.value {
                    $crate::json::Value::Object(members) => members,
                    $crate::json::Value::Null => return,
                    other => return decoder.mismatch("an object", &other),
                };
                for member in members {
                    match decoder.select(&member.key, MEMBERS) {
                        $(Some($wire) => decoder.at(
                            $crate::report::Step::Member($wire),
                            |decoder| const { $crate::object::Flags::NONE
                                $($(.$flag($($crate::spec::Spec::$spec)?))+)? }
                                .decode(&mut self.$field, member.node, decoder),
                        ),)*
                        _ => {}
                    }
                }
                $(
                    const { $crate::object::Flags::NONE
                        $($(.$flag($($crate::spec::Spec::$spec)?))+)? }
                        .fill(&mut self.$field, decoder.spec);
                )*
            }

            fn merge(&mut self, child: Self) {
                if $crate::object::Field::is_empty(&child) {
                    return;
                }
                if $crate::object::Field::is_empty(self) {
                    *self = child;
                    return;
                }
                $crate::object::Object::merge_members(self, child);
            }
        }

        impl $crate::object::Object for $name {
            fn merge_members(&mut self, child: Self) {
                $( $hook(self, &child); )?
                $(
                    if ($crate::object::Flags::NONE
                        $($(.$flag($($crate::spec::Spec::$spec)?))+)?).append
                    {
                        $crate::object::Field::append(&mut self.$field, child.$field);
                    } else {
                        $crate::object::Field::merge(&mut self.$field, child.$field);
                    }
                )*
            }
        }
    };
}
pub(crate) use object;

/// An object declared with [`object!`].
pub(crate) trait Object: Field {
    /// Merges each member of `child` into this object, even if it is empty.
    fn merge_members(&mut self, child: Self);
}
