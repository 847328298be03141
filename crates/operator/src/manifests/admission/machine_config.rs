//! The check of MachineConfigs before they are stored.
//!
//! Only what the controller would refuse anyway is denied, so that no MachineConfig is refused that
//! nodes could get. The policy has two safeguards for that: members are compared by their exact names
//! and only where they exist, although Ignition ignores the case of names; and a request for which an
//! expression fails or costs too much is admitted (`failurePolicy: Ignore`), and left to the controller.

use mco_core::render::EXTENSIONS;
use serde_json::{Value, json};

use super::{Evaluation, Policy, rule};
use crate::manifests::{
    NAMESPACE,
    rules::{CONTROLLER_NAME, OURS},
};

/// Number of files up to which paths are compared with each other. The cost grows with the square.
const COMPARED_FILES: u32 = 200;

/// Highest file mode, in decimal.
const MAX_MODE: u32 = 0o777;

/// Suffixes of unit names.
const UNITS: &str =
    "service|socket|device|mount|automount|swap|target|path|timer|snapshot|slice|scope";

/// Returns the policy and its binding.
pub(super) fn objects() -> Vec<Value> {
    let account = format!("system:serviceaccount:{NAMESPACE}:{CONTROLLER_NAME}");
    let policy = Policy {
        name: "machine-config-validation",
        rule: rule(OURS, &["machineconfigs"], &["CREATE", "UPDATE"]),
        conditions: vec![
            // It has checked everything itself.
            ("by-others", format!("request.userInfo.username != \"{account}\"")),
            // Labels and annotations of a config that was stored before can still be changed.
            (
                "spec-changed",
                "has(object.spec) && (request.operation == \"CREATE\" || !has(oldObject.spec) || \
                 oldObject.spec != object.spec)"
                    .to_owned(),
            ),
        ],
        validations: validations(),
        parameter: None,
        evaluation: Evaluation::IgnoreFailures,
    };
    policy.objects()
}

fn validations() -> Vec<Value> {
    let mut all = settings();
    all.extend(versions());
    all.extend(files());
    all.push(units());
    all
}

/// Returns the checks of members beside the Ignition config.
fn settings() -> Vec<Value> {
    let extensions = json!(EXTENSIONS);
    let kernels = json!(["", "default", "realtime", "64k-pages"]);
    vec![
        check(
            &format!("!has(object.spec.kernelType) || object.spec.kernelType in {kernels}"),
            "\"spec.kernelType=\" + string(object.spec.kernelType) + \" is invalid: use default, \
             realtime or 64k-pages\"",
        ),
        // Compat: without an Ignition config they are not checked.
        check(
            &format!(
                "!has(object.spec.extensions) || !has(object.spec.config) || \
                 object.spec.extensions.all(it, it in {extensions})"
            ),
            &format!(
                "\"invalid extensions found in spec.extensions: \" + \
                 string(object.spec.extensions.filter(it, !(it in {extensions}))[0]) + \
                 \"; supported are {}\"",
                EXTENSIONS.join(", ")
            ),
        ),
    ]
}

/// Returns the checks of the version of the Ignition config.
fn versions() -> Vec<Value> {
    let supported = "supported are 2.0 to 2.2 and 3.0 to 3.5, such as 3.5.0";
    let config = "object.spec.config";
    vec![
        check(
            &format!(
                "!has({config}) || {config}.exists(key, key.lowerAscii() == \"ignition\" && \
                 (key != \"ignition\" || {config}[key].exists(it, it.lowerAscii() == \"version\")))"
            ),
            &format!("\"spec.config.ignition.version is missing: {supported}\""),
        ),
        check(
            &format!(
                "!has({config}) || !has({config}.ignition) || !has({config}.ignition.version) || \
                 {config}.ignition.version.matches(\
                 \"^0*2[.]0*[0-2][.]|^0*3[.]0*[0-5][.]\")"
            ),
            &format!(
                "\"spec.config.ignition.version \" + string({config}.ignition.version) + \" is not \
                 supported: {supported}\""
            ),
        ),
    ]
}

/// Returns the checks of files. Those of Ignition 2 have other rules.
fn files() -> Vec<Value> {
    let files = "object.spec.config.storage.files";
    let has = format!("{} && has(object.spec.config.storage) && has({files})", is_v3());
    let each = |valid: &str, message: &str| {
        check(
            &format!("!({has}) || {files}.all(it, {valid})"),
            &message.replace("FIRST", &format!("{files}.filter(it, !({valid}))[0]")),
        )
    };
    vec![
        each(
            "!has(it.path) || it.path == \"/\" || it.path.matches(\"^(/[^/]+)+$\") && \
             !it.path.matches(\"/[.][.]?(/|$)\")",
            "\"spec.config.storage.files: path \" + string(FIRST.path) + \" must be absolute, and \
             without empty parts, . and ..\"",
        ),
        each(
            &format!("!has(it.mode) || it.mode == null || (it.mode >= 0 && it.mode <= {MAX_MODE})"),
            "\"spec.config.storage.files: invalid mode \" + string(FIRST.mode) + \" of \" + \
             string(FIRST.path) + \", cannot exceed 511, which is 0777: write the mode as an octal \
             number in YAML (0644) and as a decimal number in JSON (420)\"",
        ),
        check(
            &format!(
                "!({has}) || size({files}) > {COMPARED_FILES} || {files}.all(it, \
                 {files}.exists_one(other, other.path == it.path))"
            ),
            &format!(
                "\"spec.config.storage.files: path \" + string({files}.filter(it, \
                 !{files}.exists_one(other, other.path == it.path))[0].path) + \" is there twice\""
            ),
        ),
    ]
}

/// Returns the check of unit names.
fn units() -> Value {
    let units = "object.spec.config.systemd.units";
    let valid = format!("!has(it.name) || it.name.matches(\"[.]({UNITS})$\")");
    check(
        &format!(
            "!({} && has(object.spec.config.systemd) && has({units})) || {units}.all(it, {valid})",
            is_v3()
        ),
        &format!(
            "\"spec.config.systemd.units: name \" + string({units}.filter(it, !({valid}))[0].name) + \
             \" must end with the suffix of a unit, such as .service\""
        ),
    )
}

/// Returns the expression that the config has version 3.
fn is_v3() -> &'static str {
    "has(object.spec.config) && has(object.spec.config.ignition) && \
     has(object.spec.config.ignition.version) && object.spec.config.ignition.version.startsWith(\"3\")"
}

fn check(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "messageExpression": message})
}
