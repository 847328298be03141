//! CEL validation rules (`x-kubernetes-validations`), with the functions that Kubernetes adds.

mod complexity;
mod cost;
mod functions;
mod metered;
mod pattern;
mod rewrite;
mod value;

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use ::cel::{
    Context, Env, ParseErrors, Value as Cel, common::ast::IdedExpr, objects::OptionalValue,
};
use serde_json::Value;

use super::{Additional, ListType, Schema, SchemaError, validate};
use crate::{
    admit::Part,
    failure::{Fault, FaultKind},
    field_path::FieldPath,
    object,
};

pub(crate) use cost::{Budget, Failed, OUT_OF_BUDGET};

/// A compiled expression.
pub(crate) struct Program {
    /// The expression, which charges its cost.
    metered: IdedExpr,
    variables: Vec<String>,
    is_long: bool,
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.is_long {
            let metered = std::mem::take(&mut self.metered);
            deeply(move || drop(metered));
        }
    }
}

/// Length of a text, number of its brackets and operators, and depth of the brackets above which an
/// expression needs the larger stack.
const LONG: usize = 200;
const FEW: usize = 24;
const NESTED: usize = 4;

/// Size of the stack on which long expressions are compiled and evaluated.
const STACK: usize = 64 << 20;

/// Runs work with the larger stack.
fn deeply<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work);
        let done = thread.expect("a thread starts").join();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// A compiled rule.
#[derive(Clone)]
pub(crate) struct Rule {
    source: Arc<str>,
    program: Arc<Program>,
    message: String,
    message_program: Option<Arc<Program>>,
    message_source: String,
    field: String,
    kind: FaultKind,
    /// True if the rule refers to the old value (`oldSelf`).
    transition: bool,
    /// True if a transition rule is also evaluated without an old value.
    optional_old: bool,
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rule").field(&self.source).finish()
    }
}

/// The CEL environment of the rules.
static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [::cel::extensions::strings, ::cel::extensions::lists, metered::extension] {
        env.add_extension(extension).expect("the names of the extensions are distinct");
    }
    Arc::new(env)
});

/// Compiles an expression.
pub(crate) fn compile(text: &str) -> Result<Program, String> {
    let size = complexity::check(text)?;
    let is_long = text.len() > LONG || size.operators > FEW || size.depth > NESTED;
    if is_long { deeply(|| compile_here(text, is_long)) } else { compile_here(text, is_long) }
}

fn compile_here(text: &str, is_long: bool) -> Result<Program, String> {
    let program = ENVIRONMENT.compile(text).map_err(|error| explained(&error))?;
    let variables = program.references().variables().into_iter().map(str::to_owned).collect();
    let metered = rewrite::metered(program.expression().clone(), text);
    Ok(Program { metered, variables, is_long })
}

/// Maximum length of the message of a syntax error.
const MAX_MESSAGE: usize = 4096;

/// Returns the places and the messages of syntax errors. The texts of the errors themselves also show
/// the line, which may be long, and cannot show a column beyond 65,535.
fn explained(found: &ParseErrors) -> String {
    let mut out = String::new();
    for error in &found.errors {
        let (line, column) = error.pos;
        let separator = if out.is_empty() { "" } else { "\n" };
        let message = error.msg.chars().take(MAX_MESSAGE);
        let _ = write!(out, "{separator}ERROR: <input>:{line}:{column}: ");
        out.extend(message);
        if out.len() > MAX_MESSAGE {
            break;
        }
    }
    out
}

/// Number of compiled expressions that are kept.
const MAX_PROGRAMS: usize = 1_000;

/// Compiled expressions, by their text: compiling one takes far longer than evaluating it.
#[derive(Default)]
pub(crate) struct Programs {
    kept: Mutex<HashMap<Box<str>, Arc<Program>>>,
}

impl Programs {
    /// Returns a compiled expression.
    pub(crate) fn get(&self, text: &str) -> Result<Arc<Program>, String> {
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(text) {
            return Ok(Arc::clone(found));
        }
        let program = Arc::new(compile(text)?);
        let mut kept = lock();
        // Policies rarely change. If they do, their old expressions are forgotten some time.
        if kept.len() >= MAX_PROGRAMS {
            kept.clear();
        }
        kept.insert(text.into(), Arc::clone(&program));
        Ok(program)
    }
}

/// Returns a context with the functions of Kubernetes and a meter.
fn empty_context() -> Context<'static, 'static> {
    let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
    functions::add(&mut context);
    context.add_variable_as_val(cost::METER, Box::new(cost::Meter::new(cost::MAX_COST)));
    context
}

/// Returns a context with variables without a schema.
pub(crate) fn context(variables: &[(&str, &Value)]) -> Context<'static, 'static> {
    let mut context = empty_context();
    for (name, value) in variables {
        context.add_variable_from_value(*name, value::from_json(&Schema::default(), value));
    }
    context
}

/// Compiles the rules of one schema node.
pub(crate) fn read_rules(source: &Value, path: &str) -> Result<Vec<Rule>, SchemaError> {
    let Some(list) = source.get("x-kubernetes-validations").and_then(Value::as_array) else {
        return Ok(Vec::new());
    };
    let compiled = |text: &str, at: usize, field: &str| {
        compile(text).map(Arc::new).map_err(|error| SchemaError {
            path: format!("{path}.x-kubernetes-validations[{at}].{field}"),
            message: format!("compilation failed: {error}"),
        })
    };
    let mut rules = Vec::new();
    for (at, one) in list.iter().enumerate() {
        let text = object::text(one, &["rule"]);
        let program = compiled(text, at, "rule")?;
        let message_program = match object::text(one, &["messageExpression"]) {
            "" => None,
            text => Some(compiled(text, at, "messageExpression")?),
        };
        let transition = program.variables.iter().any(|name| name == "oldSelf");
        rules.push(Rule {
            source: text.trim().into(),
            program,
            message: object::text(one, &["message"]).to_owned(),
            message_program,
            message_source: object::text(one, &["messageExpression"]).to_owned(),
            field: object::text(one, &["fieldPath"]).to_owned(),
            kind: match object::text(one, &["reason"]) {
                "FieldValueForbidden" => FaultKind::Forbidden,
                "FieldValueRequired" => FaultKind::Required,
                "FieldValueDuplicate" => FaultKind::Duplicate,
                _ => FaultKind::Invalid,
            },
            transition,
            optional_old: one.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
        });
    }
    Ok(rules)
}

/// Evaluates all rules of the schema on the object.
pub(crate) fn evaluate(
    schema: &Schema,
    new: &Value,
    old: Option<&Value>,
    part: Part,
    faults: &mut Vec<Fault>,
) {
    if !has_rules(schema) {
        return;
    }
    let context = empty_context();
    let mut evaluation = Evaluation { context: &context, budget: Budget::of_object(), faults };
    // The faults tell why an evaluation has ended.
    let _ = match part {
        Part::Main => evaluation.walk(schema, new, old, FieldPath::Root),
        Part::Status => evaluation.rules(schema, new, old, FieldPath::Root).and_then(|()| {
            let status_path = FieldPath::Root.key("status");
            let (Some(below), Some(status)) = (schema.entry("status"), new.get("status")) else {
                return Ok(());
            };
            evaluation.walk(below, status, old.and_then(|old| old.get("status")), status_path)
        }),
    };
}

fn has_rules(schema: &Schema) -> bool {
    let each = match &schema.additional {
        Additional::Each(each) => has_rules(each),
        Additional::Nothing | Additional::Anything => false,
    };
    !schema.rules.is_empty()
        || each
        || schema.items.as_deref().is_some_and(has_rules)
        || schema.properties.values().any(has_rules)
}

/// The evaluation of the rules of an object.
struct Evaluation<'a> {
    context: &'a Context<'static, 'static>,
    budget: Budget,
    faults: &'a mut Vec<Fault>,
}

/// No further rule is evaluated.
struct Ended;

impl Evaluation<'_> {
    fn walk(
        &mut self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        path: FieldPath<'_>,
    ) -> Result<(), Ended> {
        self.rules(schema, new, old, path)?;
        match new {
            Value::Object(map) => {
                for (key, found) in map {
                    if let Some(below) = schema.entry(key) {
                        let old = old.and_then(|old| old.get(key));
                        self.walk(below, found, old, path.key(key))?;
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = schema.items.as_deref().filter(|items| has_rules(items)) else {
                    return Ok(());
                };
                for (at, item) in list.iter().enumerate() {
                    let old = old.and_then(|old| counterpart(schema, item, old));
                    self.walk(items, item, old, path.index(at))?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn rules(
        &mut self,
        schema: &Schema,
        new: &Value,
        old: Option<&Value>,
        path: FieldPath<'_>,
    ) -> Result<(), Ended> {
        if schema.rules.is_empty() || (new.is_null() && schema.nullable) {
            return Ok(());
        }
        let mut scope = self.context.new_inner_scope();
        scope.add_variable_from_value("self", value::from_json(schema, new));
        let before = old.map(|old| value::from_json(schema, old));
        for rule in &schema.rules {
            let mut scope = scope.new_inner_scope();
            match (&before, rule.optional_old) {
                (None, false) if rule.transition => continue,
                (None, false) => {}
                (Some(before), false) => scope.add_variable_from_value("oldSelf", before.clone()),
                (before, true) => {
                    let optional = match before {
                        Some(before) => OptionalValue::of(before.clone()),
                        None => OptionalValue::none(),
                    };
                    scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(optional)));
                }
            }
            let evaluated = rule.evaluate(&mut self.budget, &scope, schema, new, path);
            match evaluated {
                Ok(fault) => self.faults.extend(fault),
                Err(why) => {
                    // Compat: the value is the name of the type.
                    let kind = Value::from(schema.kind.name());
                    self.faults.push(Fault::invalid(path.to_string(), &kind, &why));
                    return Err(Ended);
                }
            }
        }
        Ok(())
    }
}

/// Returns the old item that corresponds to a list item. Only lists of type `map` identify items.
fn counterpart<'a>(schema: &Schema, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &schema.list else { return None };
    let wanted = validate::identity(item, keys);
    old.as_array()?.iter().find(|one| validate::identity(one, keys) == wanted)
}

impl Rule {
    /// Returns the fault that the rule finds. Fails if no further rule is to be evaluated.
    fn evaluate(
        &self,
        budget: &mut Budget,
        scope: &Context<'_, '_>,
        schema: &Schema,
        value: &Value,
        path: FieldPath<'_>,
    ) -> Result<Option<Fault>, String> {
        let why = match budget.run(&self.program, scope) {
            Ok(Cel::Bool(true)) => return Ok(None),
            Ok(_) => self.explanation(budget, scope)?,
            Err(Failed::Expression(error)) => {
                format!("rule evaluation failed: {error}: {}", self.source)
            }
            Err(Failed::Exceeded) => {
                let rule =
                    if self.message.is_empty() { &*self.source } else { self.message.trim() };
                return Err(format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit \
                     for rule: {rule}",
                    cost::EXCEEDED
                ));
            }
            Err(Failed::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
        };
        let message = match self.kind {
            FaultKind::Forbidden => format!("Forbidden: {why}"),
            FaultKind::Required => format!("Required value: {why}"),
            FaultKind::Duplicate => format!("Duplicate value: \"{}\"", schema.kind.name()),
            FaultKind::Invalid
            | FaultKind::NotSupported
            | FaultKind::TooLong
            | FaultKind::TooMany
            | FaultKind::TypeInvalid
            | FaultKind::NotFound => {
                if value.is_object() || value.is_array() {
                    format!("Invalid value: {why}")
                } else {
                    Fault::invalid("", value, &why).message
                }
            }
        };
        let field = format!("{path}{}", self.field);
        let field = field.strip_prefix('.').unwrap_or(&field).to_owned();
        Ok(Some(Fault { field, kind: self.kind, message }))
    }

    fn explanation(&self, budget: &mut Budget, scope: &Context<'_, '_>) -> Result<String, String> {
        match self.message_program.as_ref().map(|program| budget.run(program, scope)) {
            Some(Ok(Cel::String(text))) => return Ok(text.to_string()),
            Some(Err(Failed::Exceeded)) => {
                return Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for \
                     messageExpression: {:?}",
                    self.message_source
                ));
            }
            Some(Err(Failed::OutOfBudget)) => {
                return Err("messageExpression evaluation failed due to running out of cost \
                    budget, no further validation rules will be run"
                    .to_owned());
            }
            Some(Ok(_) | Err(Failed::Expression(_))) | None => {}
        }
        Ok(if self.message.is_empty() {
            format!("failed rule: {}", self.source)
        } else {
            self.message.clone()
        })
    }
}
