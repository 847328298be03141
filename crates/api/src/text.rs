//! Schemas of text members that several kinds share, each with length limits and CEL rules.
//!
//! The members themselves are plain strings, so that objects from an API server with weaker
//! validation can still be read; these types exist only for `#[schemars(with = "...")]`.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::json;

use crate::schema::Rule;

/// Declares the schema of a text member: its length limits and its CEL rules.
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
                    let mut schema = json_schema!($limits);
                    schema.insert("type".to_owned(), "string".into());
                    let rules: &[Rule] = &[$($rule),*];
                    schema.insert("x-kubernetes-validations".to_owned(), json!(rules));
                    schema
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

    /// The name of a rendered config, which is longer than the prefix `rendered-`.
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

    /// As `DigestedImage`, with a registry that may be on the node itself.
    LocalDigestedImage { {"minLength": 1, "maxLength": 447}, [
        ENDS_IN_DIGEST,
        Rule::new(
            r"(self.split('@')[0].matches('^(localhost|([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+)(:[0-9]{2,5})?/([a-zA-Z0-9-_]{0,61}/)?[a-zA-Z0-9-_.]*?$'))",
            "the OCI Image name should follow the host[:port][/namespace]/name format, resembling \
             a valid URL without the scheme; host must be either 'localhost' or a dot-qualified \
             domain name",
        ),
    ] }

    /// The image reference that a build is pushed to: with a tag, or in the cluster's own registry.
    PushSpec { {"minLength": 1, "maxLength": 447}, [Rule::new(
        r"self.matches('^([a-zA-Z0-9-]+\\.)+[a-zA-Z0-9-]+(:[0-9]{2,5})?(/[a-zA-Z0-9-_]{1,61})*/[a-zA-Z0-9-_.]+:[a-zA-Z0-9._-]+$') || self.matches('^[^.]+\\.[^.]+\\.svc:\\d+\\/[^\\/]+\\/[^\\/]+:[^\\/]+$')",
        "the OCI Image name should follow the host[:port][/namespace]/name format, resembling a \
         valid URL without the scheme. Or it must be a valid .svc followed by a port, repository, \
         image name, and tag.",
    )] }

    /// The name of a release bundle.
    ReleaseBundleName { {"minLength": 1, "maxLength": 64}, [Rule::new(
        r"self.matches('^ocp-release-bundle-[0-9]+\\.[0-9]+\\.[0-9]+-[A-Za-z0-9._-]+$')",
        "must be ocp-release-bundle-<version>-<arch|stream> and <= 64 chars",
    )] }

    /// The name of a systemd unit, suffix included.
    UnitName { {"maxLength": 255}, [
        Rule::new(
            r"self.matches('\\.(service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope)$')",
            "Invalid ${SERVICETYPE} in service name. Expected format is ${NAME}${SERVICETYPE}, \
             where ${SERVICETYPE} must be one of \".service\", \".socket\", \".device\", \
             \".mount\", \".automount\", \".swap\", \".target\", \".path\", \".timer\",\
             \".snapshot\", \".slice\" or \".scope\".",
        ),
        Rule::new(
            r"self.matches('^[a-zA-Z0-9:._\\\\-]+\\..')",
            "Invalid ${NAME} in service name. Expected format is ${NAME}${SERVICETYPE}, where \
             {NAME} must be atleast 1 character long and can only consist of alphabets, digits, \
             \":\", \"-\", \"_\", \".\", and \"\\\"",
        ),
    ] }

    /// A version of OpenShift.
    OcpVersion { {"minLength": 5, "maxLength": 10}, [Rule::new(
        r"self.matches('^[0-9]+\\.[0-9]+\\.[0-9]+$')",
        "ocpVersion must match the OCP semver compatible format of x.y.z",
    )] }

    /// A version of the operating system.
    RhcosVersion { {"minLength": 14, "maxLength": 21}, [Rule::new(
        r"self.matches('^[0-9]+\\.[0-9]+\\.([0-9]{8}|[0-9]{12})-[0-9]+$')",
        "rhcosVersion must match format [major].[minor].[datestamp(YYYYMMDD)]-[buildnumber] or \
         must match legacy format [major].[minor].[timestamp(YYYYMMDDHHmm)]-[buildnumber]",
    )] }

    /// The absolute path of an image store.
    StorePath { {"minLength": 1, "maxLength": 256}, [
        Rule::new(
            "self.matches('^/[a-zA-Z0-9/._-]+$')",
            "path must be absolute and contain only alphanumeric characters, '/', '.', '_', and '-'",
        ),
        Rule::new("!self.contains('//')", "path must not contain consecutive forward slashes"),
    ] }

    /// A label of a domain name.
    DnsLabel { {"minLength": 1, "maxLength": 63}, [Rule::new(
        "!format.dns1123Label().validate(self).hasValue()",
        "the value must consist of only lowercase alphanumeric characters and hyphens",
    )] }

    /// The plural name of a resource.
    ResourceName { {"minLength": 1, "maxLength": 63}, [Rule::new(
        "!format.dns1035Label().validate(self).hasValue()",
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
         an alphabetic character, and end with an alphanumeric character",
    )] }

    /// An IP address.
    IpAddress { {"minLength": 1, "maxLength": 39}, [
        Rule::new("isIP(self)", "value must be a valid IP address"),
    ] }

    /// A network in CIDR notation.
    Cidr { {"minLength": 1, "maxLength": 43}, [
        Rule::new("isCIDR(self)", "value must be a valid CIDR network address"),
    ] }
}
