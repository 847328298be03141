//! Declaration of a Kubernetes kind: its root object and the constant parts of its CRD.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiext;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::{Schema, SchemaGenerator};

use crate::schema::{self, Rule};

/// API group of all kinds except ClusterOperator and MachineConfiguration.
pub const GROUP: &str = "machineconfiguration.openshift.io";

/// API version of all kinds.
pub const VERSION: &str = "v1";

/// Parts of a CRD that cannot be derived from the Rust type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Definition {
    /// API group.
    pub(crate) group: &'static str,
    /// Plural name, as in URLs.
    pub(crate) plural: &'static str,
    /// Short names for kubectl.
    pub(crate) short_names: &'static [&'static str],
    /// Columns that `kubectl get` prints.
    pub(crate) columns: &'static [Column],
    /// Required members of the root object.
    pub(crate) required: &'static [&'static str],
    /// CEL rules on the root object.
    pub(crate) rules: &'static [Rule],
    /// Labels on the CRD object.
    pub(crate) labels: &'static [(&'static str, &'static str)],
}

impl Definition {
    /// Values that most kinds share.
    pub(crate) const COMMON: Self = Self {
        group: GROUP,
        plural: "",
        short_names: &[],
        columns: &[],
        required: &["spec"],
        rules: &[],
        labels: &[(crate::label::OPERATOR_MANAGED, "")],
    };
}

/// One column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    name: &'static str,
    kind: &'static str,
    path: &'static str,
    description: &'static str,
    priority: i32,
}

impl Column {
    /// Column with the age of the object.
    pub(crate) const AGE: Self = Self::new("Age", "date", ".metadata.creationTimestamp", "");

    /// Returns a column of type string.
    pub(crate) const fn text(
        name: &'static str,
        path: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, "string", path, description)
    }

    /// Returns a column of type number.
    pub(crate) const fn number(
        name: &'static str,
        path: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, "number", path, description)
    }

    /// Returns a column of type date, which kubectl prints as an age.
    pub(crate) const fn date(
        name: &'static str,
        path: &'static str,
        description: &'static str,
    ) -> Self {
        Self::new(name, "date", path, description)
    }

    /// Shows the column only with `-o wide`.
    pub(crate) const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    const fn new(
        name: &'static str,
        kind: &'static str,
        path: &'static str,
        description: &'static str,
    ) -> Self {
        Self { name, kind, path, description, priority: 0 }
    }

    fn to_wire(self) -> apiext::CustomResourceColumnDefinition {
        apiext::CustomResourceColumnDefinition {
            name: self.name.to_owned(),
            type_: self.kind.to_owned(),
            json_path: self.path.to_owned(),
            description: (!self.description.is_empty()).then(|| self.description.to_owned()),
            priority: (self.priority != 0).then_some(self.priority),
            format: None,
        }
    }
}

/// Builds the path of a column that shows the status of one condition.
macro_rules! condition_path {
    ($kind:literal) => {
        concat!(".status.conditions[?(@.type==\"", $kind, "\")].status")
    };
}
pub(crate) use condition_path;

/// Parts of a kind that the CRD generator needs.
pub(crate) trait Kind: kube_core::Resource<DynamicType = ()> {
    /// Parts of the CRD that cannot be derived from the Rust type.
    const DEFINITION: Definition;
    /// Description of the kind.
    const DESCRIPTION: &'static str;
    /// True if the kind has a status subresource.
    const HAS_STATUS: bool;

    /// Returns the schemas of `spec` and, if the kind has one, `status`.
    fn members(generator: &mut SchemaGenerator) -> Vec<(&'static str, Schema)>;
}

/// Builds the CRD of a kind.
pub(crate) fn definition<K: Kind>() -> apiext::CustomResourceDefinition {
    let facts = K::DEFINITION;
    let kind = K::kind(&()).into_owned();
    let owned = |words: &[&str]| {
        (!words.is_empty()).then(|| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    };
    let columns: Vec<_> = facts.columns.iter().map(|column| column.to_wire()).collect();
    let labels: std::collections::BTreeMap<_, _> =
        facts.labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();

    apiext::CustomResourceDefinition {
        metadata: ObjectMeta {
            name: Some(format!("{}.{}", facts.plural, facts.group)),
            labels: (!labels.is_empty()).then_some(labels),
            ..ObjectMeta::default()
        },
        spec: apiext::CustomResourceDefinitionSpec {
            group: facts.group.to_owned(),
            names: apiext::CustomResourceDefinitionNames {
                plural: facts.plural.to_owned(),
                singular: Some(kind.to_lowercase()),
                list_kind: Some(format!("{kind}List")),
                short_names: owned(facts.short_names),
                categories: None,
                kind,
            },
            scope: "Cluster".to_owned(),
            versions: vec![apiext::CustomResourceDefinitionVersion {
                name: VERSION.to_owned(),
                served: true,
                storage: true,
                schema: Some(apiext::CustomResourceValidation {
                    open_api_v3_schema: Some(schema::root::<K>()),
                }),
                additional_printer_columns: (!columns.is_empty()).then_some(columns),
                subresources: K::HAS_STATUS.then(|| apiext::CustomResourceSubresources {
                    scale: None,
                    status: Some(apiext::CustomResourceSubresourceStatus(serde_json::json!({}))),
                }),
                ..apiext::CustomResourceDefinitionVersion::default()
            }],
            ..apiext::CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}

/// Declares the root object of a kind: metadata, spec and optionally status.
///
/// An absent `spec` deserializes as the default, as in the reference; the schema decides if the API
/// server accepts its absence.
macro_rules! kind {
    (
        $(#[doc = $doc:literal])+
        pub struct $name:ident {
            spec: $spec:ty,
            $(status: $status:ty,)?
        }
        $definition:expr
    ) => {
        $(#[doc = $doc])+
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Standard object metadata.
            pub metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
            /// Desired state.
            #[serde(deserialize_with = "crate::wire::null_as_default")]
            pub spec: $spec,
            $(
                /// Observed state.
                pub status: Option<$status>,
            )?
        }

        impl $name {
            /// Builds an object with the given name and spec, and nothing else.
            #[must_use]
            pub fn new(name: &str, spec: $spec) -> Self {
                let mut object = Self { spec, ..Self::default() };
                object.metadata.name = Some(name.to_owned());
                object
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeStruct;
                let mut object = to.serialize_struct(stringify!($name), 5)?;
                let version = <Self as kube_core::Resource>::api_version(&());
                object.serialize_field("apiVersion", &version)?;
                object.serialize_field("kind", stringify!($name))?;
                object.serialize_field("metadata", &self.metadata)?;
                object.serialize_field("spec", &self.spec)?;
                $(
                    if let Some(status) = &self.status {
                        object.serialize_field::<$status>("status", status)?;
                    } else {
                        object.skip_field("status")?;
                    }
                )?
                object.end()
            }
        }

        impl kube_core::Resource for $name {
            type DynamicType = ();
            type Scope = kube_core::ClusterResourceScope;

            fn kind((): &()) -> std::borrow::Cow<'_, str> {
                stringify!($name).into()
            }

            fn group((): &()) -> std::borrow::Cow<'_, str> {
                <Self as crate::kind::Kind>::DEFINITION.group.into()
            }

            fn version((): &()) -> std::borrow::Cow<'_, str> {
                crate::kind::VERSION.into()
            }

            fn plural((): &()) -> std::borrow::Cow<'_, str> {
                <Self as crate::kind::Kind>::DEFINITION.plural.into()
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }

        impl crate::kind::Kind for $name {
            const DEFINITION: crate::kind::Definition = $definition;
            const DESCRIPTION: &'static str = concat!($($doc, "\n"),+);
            const HAS_STATUS: bool = <[&str]>::len(&[$(stringify!($status)),*]) == 1;

            fn members(
                generator: &mut schemars::SchemaGenerator,
            ) -> Vec<(&'static str, schemars::Schema)> {
                vec![
                    ("spec", generator.subschema_for::<$spec>()),
                    $( ("status", generator.subschema_for::<$status>()), )?
                ]
            }
        }
    };
}
pub(crate) use kind;
