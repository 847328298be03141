//! Structures that several kinds share: references, conditions, selectors.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::text::{DnsLabel, ObjectName, RequiredObjectName, ResourceName};
use crate::wire_enum::wire_enum;

/// A reference to another object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct ObjectReference {
    /// Kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// API group and version of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// Version of the object that the reference is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// Part of the object that the reference is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field_path: String,
}

/// A reference to an object by group and resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ResourceReference {
    /// API group; empty for the core group.
    #[schemars(with = "ObjectName")]
    pub group: String,
    /// Plural name of the resource.
    #[schemars(with = "ResourceName")]
    pub resource: String,
    /// Namespace of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[schemars(with = "DnsLabel")]
    pub namespace: String,
    /// Name of the object.
    #[schemars(with = "RequiredObjectName")]
    pub name: String,
}

wire_enum! {
    /// Status of a condition.
    pub enum ConditionStatus {
        /// The status cannot be determined.
        Unknown = "Unknown",
        /// The condition holds.
        True = "True",
        /// The condition does not hold.
        False = "False",
    }
}

/// A condition of the older form, whose members are free text.
///
/// Pools, KubeletConfigs and ContainerRuntimeConfigs have these; newer kinds use the condition type
/// of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(description = "One condition of the object.", extend("required" = []))]
pub struct LooseCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub kind: String,
    /// Status of the condition: `True`, `False` or `Unknown`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// Time at which the status last changed.
    #[schemars(extend("nullable" = true))]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_transition_time: Option<Time>,
    /// Reason for the status, as one word for programs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Reason for the status, as a sentence for administrators.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Schema of `k8s_openapi`'s `Condition`, for `#[schemars(with = "...")]`.
#[derive(Debug)]
pub(crate) struct ConditionSchema;

impl JsonSchema for ConditionSchema {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "description": "One condition of the object.",
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
            "properties": {
                "lastTransitionTime": {
                    "type": "string", "format": "date-time",
                    "description": "Time at which the status last changed."
                },
                "message": {
                    "type": "string", "maxLength": 32768,
                    "description": "Reason for the status, as a sentence for administrators."
                },
                "observedGeneration": {
                    "type": "integer", "format": "int64", "minimum": 0,
                    "description": "Generation of the object that the condition was set for."
                },
                "reason": {
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                    "description": "Reason for the status, as one word for programs."
                },
                "status": {
                    "type": "string", "enum": ["True", "False", "Unknown"],
                    "description": "Status of the condition: `True`, `False` or `Unknown`."
                },
                "type": {
                    "type": "string", "maxLength": 316,
                    "pattern": r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
                    "description": "Type of the condition."
                }
            }
        })
    }
}

/// Schema of `k8s_openapi`'s `LabelSelector`, for `#[schemars(with = "...")]`.
#[derive(Debug)]
pub(crate) struct SelectorSchema;

impl JsonSchema for SelectorSchema {
    fn schema_name() -> Cow<'static, str> {
        "LabelSelector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {
                "matchExpressions": {
                    "type": "array", "x-kubernetes-list-type": "atomic",
                    "description": "Requirements on labels. All of them must hold.",
                    "items": {
                        "type": "object",
                        "description": "A requirement on one label.",
                        "required": ["key", "operator"],
                        "properties": {
                            "key": {"type": "string", "description": "Key of the label."},
                            "operator": {
                                "type": "string",
                                "description": "Operator: `In`, `NotIn`, `Exists` or `DoesNotExist`."
                            },
                            "values": {
                                "type": "array", "x-kubernetes-list-type": "atomic",
                                "description": "Values for `In` and `NotIn`. Empty for the other operators.",
                                "items": {"type": "string"}
                            }
                        }
                    }
                },
                "matchLabels": {
                    "type": "object",
                    "description": "Labels that the object must have with exactly these values.",
                    "additionalProperties": {"type": "string"}
                }
            }
        })
    }
}

/// Schema of a quantity such as `10G`, for `#[schemars(with = "...")]`.
#[derive(Debug)]
pub(crate) struct QuantitySchema;

impl JsonSchema for QuantitySchema {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
        })
    }
}

/// Schema of `k8s_openapi`'s `Time`, for `#[schemars(with = "...")]`.
#[derive(Debug)]
pub(crate) struct TimeSchema;

impl JsonSchema for TimeSchema {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// Schema of `k8s_openapi`'s `IntOrString`, for `#[schemars(with = "...")]`.
#[derive(Debug)]
pub(crate) struct IntOrStringSchema;

impl JsonSchema for IntOrStringSchema {
    fn schema_name() -> Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// Schema of an object that the API server validates by other rules, such as embedded metadata.
#[derive(Debug)]
pub(crate) struct AnyObject;

impl JsonSchema for AnyObject {
    fn schema_name() -> Cow<'static, str> {
        "AnyObject".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "object"})
    }
}
