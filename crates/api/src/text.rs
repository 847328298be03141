//! Kinds of text that several schemas share, each with its limits and rules.
//!
//! The members themselves are plain strings, so that an object from a laxer server can still be
//! read; these types exist only for `#[schemars(with = "...")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::json;

use crate::schema::{Rule, rules};

/// Declares a kind of text: its length limits and its CEL rules.
macro_rules! text {
    ($( $(#[$doc:meta])* $name:ident { $limits:tt, [$($rule:expr),* $(,)?] } )*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub(crate) struct $name;

            impl JsonSchema for $name {
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }

                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    let mut schema = json!($limits);
                    schema["type"] = "string".into();
                    let list: &[Rule] = &[$($rule),*];
                    if !list.is_empty() {
                        schema["x-kubernetes-validations"] = rules(list);
                    }
                    Schema::try_from(schema).expect("an object is a schema")
                }
            }
        )*
    };
}

const SUBDOMAIN: Rule = Rule::new(
    "!format.dns1123Subdomain().validate(self).hasValue()",
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character.",
);

const ENDS_IN_DIGEST: Rule = Rule::new(
    "(self.split('@').size() == 2 && self.split('@')[1].matches('^sha256:[a-f0-9]{64}$'))",
    "the OCI Image reference must end with a valid '@sha256:<digest>' suffix, where '<digest>' \
     is 64 characters long",
);

text! {
    /// An object name that may be empty in old objects.
    ObjectName { {"maxLength": 253}, [SUBDOMAIN] }

    /// An object name.
    RequiredObjectName { {"minLength": 1, "maxLength": 253}, [SUBDOMAIN] }

    /// The name of a rendered config; it is longer than its prefix.
    RenderedConfigName { {"minLength": 10, "maxLength": 253}, [SUBDOMAIN] }

    /// The name of an OS image stream.
    StreamName { {"minLength": 1, "maxLength": 253}, [SUBDOMAIN] }

    /// An image reference by digest, with at most one namespace level.
    DigestedImage { {"minLength": 1, "maxLength": 447}, [
        ENDS_IN_DIGEST,
        Rule::new(
            r"(self.split('@')[0].matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling \
             a valid URL without the scheme",
        ),
    ] }
}
