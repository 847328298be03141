//! The types of the built-in kinds: their fields as JSON and protobuf know them, and the rules by
//! which patches merge them.
//!
//! The table is made from the types of Kubernetes by `scripts/kube-types`.

pub(crate) mod canonical;
pub(crate) mod merge;
pub(crate) mod proto;

use std::{
    collections::BTreeMap,
    sync::{LazyLock, OnceLock},
};

use merge::Merge;
use serde_json::Value;

const TABLE: &str = include_str!("types/table.txt");

static TYPES: LazyLock<BTreeMap<&'static str, Definition>> = LazyLock::new(|| parse(TABLE));

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Text,
    Bool,
    /// An integer, by the name of its Go type.
    Int(&'static str),
    Float,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    /// Any JSON value.
    Raw,
    List(Box<Type>),
    Map(Box<Type>),
    Pointer(Box<Type>),
    /// A type of the table.
    Named(Name),
}

/// The name of a type of the table. The type is looked up once.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    text: &'static str,
    found: OnceLock<Option<&'static Definition>>,
}

impl Name {
    const fn new(text: &'static str) -> Self {
        Self { text, found: OnceLock::new() }
    }

    pub(crate) fn text(&self) -> &'static str {
        self.text
    }

    fn definition(&self) -> Option<&'static Definition> {
        *self.found.get_or_init(|| TYPES.get(self.text))
    }

    /// Returns the type, if it has fields.
    pub(crate) fn structure(&self) -> Option<&'static Struct> {
        match self.definition()? {
            Definition::Struct(found) => Some(found),
            Definition::Alias(..) => None,
        }
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Name {}

/// The type of all metadata.
pub(crate) static METADATA: Type = Type::Named(Name::new("meta.v1.ObjectMeta"));

/// An entry of the table.
#[derive(Debug)]
enum Definition {
    /// Another name of a type, and the values of an enum.
    Alias(Type, Vec<String>),
    Struct(Struct),
}

/// A type with fields.
#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<Field>,
    /// True if an apply owns and replaces values of the type as a whole.
    pub(crate) is_atomic: bool,
    /// The fields that JSON always contains, with their values where they are absent.
    constant: OnceLock<Vec<(&'static str, Value)>>,
}

/// A field of a type.
#[derive(Debug)]
pub(crate) struct Field {
    /// Name in JSON. Empty if the fields of its type belong to the surrounding object.
    pub(crate) name: &'static str,
    /// Number in protobuf, zero if the field is not encoded.
    pub(crate) number: u64,
    pub(crate) kind: Type,
    /// True if JSON leaves out an empty value.
    pub(crate) omits_empty: bool,
    /// True if JSON leaves out a value whose fields are all empty.
    pub(crate) omits_zero: bool,
    /// Rules by which patches merge the field.
    pub(crate) merge: Merge,
    pub(crate) published: Published,
}

/// The marks of a field that only `OpenAPI` documents need.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) is_required: bool,
    /// Default value, as JSON text.
    pub(crate) default: Option<&'static str>,
    pub(crate) list_type: Option<&'static str>,
    pub(crate) patch_strategy: Option<&'static str>,
}

impl Struct {
    /// Returns the field with this JSON name.
    pub(crate) fn field(&'static self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find_map(|field| {
            if field.name == name {
                return Some(field);
            }
            let inline = field.name.is_empty().then(|| inner(&field.kind)).flatten()?;
            inline.field(name)
        })
    }
}

/// Returns the type with this name, such as `core.v1.Pod`.
pub(crate) fn struct_of(name: &str) -> Option<&'static Struct> {
    match TYPES.get(name)? {
        Definition::Struct(found) => Some(found),
        Definition::Alias(..) => None,
    }
}

/// Returns the type of the objects of a built-in kind.
pub(crate) fn of_kind(group: &str, version: &str, kind: &str) -> Option<&'static Struct> {
    let group = match group {
        "" => "core",
        "policy" | "apps" | "batch" | "autoscaling" => group,
        other => other.strip_suffix(".k8s.io")?.split('.').next()?,
    };
    struct_of(&format!("{group}.{version}.{kind}"))
}

/// Returns the type behind aliases and pointers.
pub(crate) fn resolved(kind: &'static Type) -> &'static Type {
    if let Type::Pointer(below) = kind {
        return resolved(below);
    }
    if let Type::Named(name) = kind
        && let Some(Definition::Alias(below, _)) = name.definition()
    {
        return resolved(below);
    }
    kind
}

/// Returns the values of an enum, or none if the type has any values.
pub(crate) fn values(kind: &'static Type) -> &'static [String] {
    if let Type::Pointer(below) = kind {
        return values(below);
    }
    if let Type::Named(name) = kind
        && let Some(Definition::Alias(_, values)) = name.definition()
    {
        return values;
    }
    &[]
}

/// Returns the type with fields behind aliases, pointers and lists.
pub(crate) fn inner(kind: &'static Type) -> Option<&'static Struct> {
    let kind = resolved(kind);
    if let Type::List(below) | Type::Map(below) = kind {
        return inner(below);
    }
    if let Type::Named(name) = kind { name.structure() } else { None }
}

fn parse(table: &'static str) -> BTreeMap<&'static str, Definition> {
    let mut types = BTreeMap::new();
    let mut name = "";
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split(' ').collect();
        match words.as_slice() {
            ["alias", name, kind, values @ ..] => {
                let plain = |value: &&str| value.trim_matches('"').replace("%20", " ");
                let values = values.iter().skip(1).map(plain).collect();
                types.insert(*name, Definition::Alias(kind_of(kind), values));
            }
            ["type", found] | ["type", found, "atomic"] => {
                name = found;
                let is_atomic = words.len() > 2;
                let constant = OnceLock::new();
                let found = Struct { name, fields: Vec::new(), is_atomic, constant };
                types.insert(name, Definition::Struct(found));
            }
            [field, number, kind, marks @ ..] => {
                if let Some(Definition::Struct(found)) = types.get_mut(name) {
                    found.fields.push(field_of(field, number, kind, marks));
                }
            }
            _ => {}
        }
    }
    types
}

fn field_of(name: &'static str, number: &str, kind: &'static str, marks: &[&'static str]) -> Field {
    let mark = |name| marks.iter().find_map(|mark| mark.strip_prefix(name));
    Field {
        name: if name == "-" { "" } else { name },
        number: number.parse().unwrap_or(0),
        kind: kind_of(kind),
        omits_empty: marks.contains(&"omitempty"),
        omits_zero: marks.contains(&"omitzero"),
        merge: Merge::read(marks),
        published: Published {
            is_required: marks.contains(&"required"),
            default: mark("default="),
            list_type: mark("list="),
            patch_strategy: mark("strategy="),
        },
    }
}

fn kind_of(text: &'static str) -> Type {
    if let Some(below) = text.strip_prefix('*') {
        return Type::Pointer(Box::new(kind_of(below)));
    }
    if let Some(below) = text.strip_prefix("[]") {
        return Type::List(Box::new(kind_of(below)));
    }
    if let Some(below) = text.strip_prefix("{}") {
        return Type::Map(Box::new(kind_of(below)));
    }
    match text {
        "string" => Type::Text,
        "bool" => Type::Bool,
        "int32" | "int64" | "int" | "uint8" | "uint32" | "uint64" => Type::Int(text),
        "float64" => Type::Float,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "raw" | "fields" => Type::Raw,
        name => Type::Named(Name::new(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin;

    #[test]
    fn every_built_in_kind_has_a_type() {
        for resource in builtin::all().filter(|one| one.group != "apiextensions.k8s.io") {
            let group = if resource.group == "events.k8s.io" { "" } else { &resource.group };
            assert!(
                of_kind(group, &resource.version, &resource.kind).is_some(),
                "{}",
                resource.kind
            );
        }
    }

    #[test]
    fn every_type_that_a_field_names_is_in_the_table() {
        for definition in TYPES.values() {
            let Definition::Struct(found) = definition else { continue };
            for field in &found.fields {
                let mut kind = resolved(&field.kind);
                while let Type::List(below) | Type::Map(below) = kind {
                    kind = resolved(below);
                }
                if let Type::Named(name) = kind {
                    let text = name.text();
                    assert!(name.structure().is_some(), "{}.{}: {text}", found.name, field.name);
                }
            }
        }
    }

    #[test]
    fn fields_of_inlined_types_belong_to_the_object() {
        let volume = struct_of("core.v1.Volume").unwrap();
        assert_eq!(volume.field("hostPath").unwrap().number, 1);
        assert_eq!(volume.field("nothing").map(|field| field.number), None);
    }
}
