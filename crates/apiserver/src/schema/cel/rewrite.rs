//! Rewrites expressions so that their evaluation charges its cost.
//!
//! A part that is evaluated as a whole or not at all charges the cost of its identifiers, selections
//! and calls before it is evaluated. What depends on values is charged by the functions of `metered`.
//! Loops charge for each item, and a loop ends at once when the limit is exceeded: the error of a
//! condition, unlike that of a step, is never overridden by a later item.

use ::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    SelectExpr, operators,
};

use super::{
    cost::METER,
    metered::{
        ADD, CONTAINS, COPY, COUNT, EQUALS, IN, ITEM, JOIN, MATCHES, OPTIONAL, PEEK, READ, REPLACE,
        SPEND, SQUARE,
    },
};

/// Cost of a new list, map or structure.
const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
const NEW_STRUCT: u64 = 40;

/// First parts of the names of functions that have several.
const NAMESPACES: [&str; 4] = ["format", "lists", "optional", "strings"];

/// Variables that are never optional. The others may be.
const PLAIN: [&str; 6] = ["object", "oldObject", "params", "request", "namespaceObject", "self"];

/// Returns an expression that charges its cost.
pub(super) fn metered(expression: IdedExpr, source: &str) -> IdedExpr {
    let has_optionals =
        ["optional", ".?", "[?", "oldSelf", "variables"].iter().any(|word| source.contains(word));
    Rewriter { has_optionals }.block(expression)
}

/// Returns true if the expression is an `@result + [ITEM]`, alone or under a condition. The interpreter
/// runs such loops in place, as long as they have this form.
fn is_append(comprehension: &ComprehensionExpr) -> bool {
    let is_result =
        |it: &IdedExpr| matches!(&it.expr, Expr::Ident(name) if *name == comprehension.accu_var);
    let is_sum = |it: &IdedExpr| {
        called(it, operators::ADD).is_some_and(|args| {
            matches!(args, [sum, new] if is_result(sum) && matches!(new.expr, Expr::List(_)))
        })
    };
    let has_form = match called(&comprehension.loop_step, operators::CONDITIONAL) {
        Some(args) => matches!(args, [_, sum, same] if is_sum(sum) && is_result(same)),
        None => is_sum(&comprehension.loop_step),
    };
    has_form
        && is_result(&comprehension.result)
        && matches!(comprehension.loop_cond.expr, Expr::Literal(_))
}

/// Returns the arguments of an operator.
fn called<'a>(expression: &'a IdedExpr, operator: &str) -> Option<&'a [IdedExpr]> {
    let Expr::Call(found) = &expression.expr else { return None };
    (found.func_name == operator && found.target.is_none()).then_some(found.args.as_slice())
}

fn of(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    of(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// Returns the call of a function that charges.
fn charging(name: &str, mut args: Vec<IdedExpr>) -> IdedExpr {
    args.insert(0, of(Expr::Ident(METER.to_owned())));
    call(name, args)
}

fn number(cost: u64) -> IdedExpr {
    let cost = i64::try_from(cost).unwrap_or(i64::MAX);
    of(Expr::Literal(LiteralValue::Int(cost.into())))
}

/// Returns an expression that is evaluated after a charge.
fn after(charge: IdedExpr, expression: IdedExpr) -> IdedExpr {
    let never = of(Expr::Literal(LiteralValue::Boolean(false.into())));
    call(operators::CONDITIONAL, vec![charge, expression, never])
}

fn is_literal(expression: &IdedExpr) -> bool {
    matches!(expression.expr, Expr::Literal(_))
}

fn is_constant_list(expression: &IdedExpr) -> bool {
    matches!(&expression.expr, Expr::List(list) if list.elements.iter().all(is_literal))
}

/// Returns the cost of comparing with a literal.
fn literal_cost(expression: &IdedExpr) -> Option<u64> {
    let Expr::Literal(literal) = &expression.expr else { return None };
    let length = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => 1,
    };
    Some(length.div_ceil(10) as u64)
}

fn is_number(expression: &IdedExpr) -> bool {
    use LiteralValue::{Double, Int, UInt};
    matches!(expression.expr, Expr::Literal(Int(_) | UInt(_) | Double(_)))
}

/// Returns true if the target of a call is a part of the name of a function.
fn is_namespace(target: &IdedExpr) -> bool {
    matches!(&target.expr, Expr::Ident(name) if NAMESPACES.contains(&name.as_str()))
}

struct Rewriter {
    /// True if a variable or a field may be optional.
    has_optionals: bool,
}

impl Rewriter {
    /// Rewrites an expression that is evaluated as a whole or not at all.
    fn block(&self, expression: IdedExpr) -> IdedExpr {
        let mut cost = 0;
        let expression = self.rewrite(expression, &mut cost);
        if cost == 0 {
            return expression;
        }
        after(charging(SPEND, vec![number(cost)]), expression)
    }

    /// Rewrites an expression and adds its own cost.
    fn rewrite(&self, expression: IdedExpr, cost: &mut u64) -> IdedExpr {
        let id = expression.id;
        let expr = match expression.expr {
            Expr::Ident(name) => {
                *cost += 1;
                Expr::Ident(name)
            }
            Expr::Select(select) => self.select(select, cost),
            Expr::Call(call) => self.call(call, cost).expr,
            Expr::Comprehension(loop_) => {
                Expr::Comprehension(Box::new(self.comprehension(*loop_, cost)))
            }
            Expr::List(list) => {
                let is_constant = list.elements.iter().all(is_literal);
                *cost += if is_constant { 0 } else { NEW_LIST };
                let ListExpr { elements, optional_indices } = list;
                let elements = elements.into_iter().map(|it| self.part(it, cost)).collect();
                Expr::List(ListExpr { elements, optional_indices })
            }
            Expr::Map(mut map) => {
                *cost += NEW_MAP;
                self.entries(&mut map.entries, cost);
                Expr::Map(map)
            }
            Expr::Struct(mut structure) => {
                *cost += NEW_STRUCT;
                self.entries(&mut structure.entries, cost);
                Expr::Struct(structure)
            }
            same @ (Expr::Literal(_) | Expr::Unspecified) => same,
        };
        IdedExpr { id, expr }
    }

    /// Rewrites a value that becomes part of another one.
    fn part(&self, expression: IdedExpr, cost: &mut u64) -> IdedExpr {
        self.argument(COPY, expression, cost)
    }

    /// Rewrites an argument that a function charges.
    fn argument(&self, function: &str, expression: IdedExpr, cost: &mut u64) -> IdedExpr {
        if is_literal(&expression) {
            return expression;
        }
        charging(function, vec![self.rewrite(expression, cost)])
    }

    fn entries(&self, entries: &mut [IdedEntryExpr], cost: &mut u64) {
        for entry in entries {
            match &mut entry.expr {
                EntryExpr::MapEntry(entry) => {
                    entry.key = self.part(std::mem::take(&mut entry.key), cost);
                    entry.value = self.part(std::mem::take(&mut entry.value), cost);
                }
                EntryExpr::StructField(field) => {
                    field.value = self.part(std::mem::take(&mut field.value), cost);
                }
            }
        }
    }

    fn select(&self, select: SelectExpr, cost: &mut u64) -> Expr {
        let SelectExpr { operand, field, test } = select;
        *cost += u64::from(!test);
        let operand = Box::new(self.container(*operand, cost));
        Expr::Select(SelectExpr { operand, field, test })
    }

    /// Rewrites a value of which a part is selected. Selecting from an optional one copies the part.
    fn container(&self, expression: IdedExpr, cost: &mut u64) -> IdedExpr {
        let is_name = |it: &IdedExpr, is: &dyn Fn(&str) -> bool| matches!(&it.expr, Expr::Ident(name) if is(name));
        let is_variable = matches!(&expression.expr, Expr::Select(select)
            if is_name(&select.operand, &|name| name == "variables"));
        let may_be_optional = is_variable
            || is_name(&expression, &|name| !PLAIN.contains(&name) && name != "variables");
        let expression = self.rewrite(expression, cost);
        if may_be_optional && self.has_optionals {
            return charging(OPTIONAL, vec![expression]);
        }
        expression
    }

    fn comprehension(&self, loop_: ComprehensionExpr, cost: &mut u64) -> ComprehensionExpr {
        let is_append = is_append(&loop_);
        let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } = loop_;
        let step = |this: &Self, expression: IdedExpr| {
            let mut cost = 0;
            let expression = this.rewrite(expression, &mut cost);
            let item = of(Expr::Ident(loop_.iter_var.clone()));
            after(charging(ITEM, vec![number(cost), item]), expression)
        };
        let (loop_cond, loop_step) = if is_append {
            (loop_cond, self.append(loop_step, &step))
        } else {
            // Charged in any case, because the error of the charge ends the loop.
            let mut cost = 0;
            let condition = self.rewrite(loop_cond, &mut cost);
            let condition = after(charging(SPEND, vec![number(cost)]), condition);
            (condition, self.fold(loop_step, &step))
        };
        ComprehensionExpr {
            iter_range: self.rewrite(iter_range, cost),
            accu_init: self.part(accu_init, cost),
            loop_cond,
            loop_step,
            result: self.rewrite(result, cost),
            ..loop_
        }
    }

    /// Rewrites `@result + [ITEM]`, alone or under a condition.
    fn append(
        &self,
        expression: IdedExpr,
        step: &impl Fn(&Self, IdedExpr) -> IdedExpr,
    ) -> IdedExpr {
        let Expr::Call(mut found) = expression.expr else { return expression };
        let args = std::mem::take(&mut found.args);
        found.args = match <[IdedExpr; 3]>::try_from(args) {
            Ok([condition, sum, same]) => {
                vec![step(self, condition), self.append(sum, &Self::block_of), same]
            }
            Err(args) => args.into_iter().map(|arg| self.appended(arg, step)).collect(),
        };
        IdedExpr { id: expression.id, expr: Expr::Call(found) }
    }

    fn appended(
        &self,
        expression: IdedExpr,
        step: &impl Fn(&Self, IdedExpr) -> IdedExpr,
    ) -> IdedExpr {
        let Expr::List(ListExpr { elements, optional_indices }) = expression.expr else {
            return expression;
        };
        let elements =
            elements.into_iter().map(|it| charging(COPY, vec![step(self, it)])).collect();
        of(Expr::List(ListExpr { elements, optional_indices }))
    }

    fn block_of(&self, expression: IdedExpr) -> IdedExpr {
        self.block(expression)
    }

    /// Rewrites the step of a loop. `@result && STEP` keeps its form, by which the interpreter knows
    /// that errors may be overridden.
    fn fold(&self, expression: IdedExpr, step: &impl Fn(&Self, IdedExpr) -> IdedExpr) -> IdedExpr {
        let is_fold = [operators::LOGICAL_AND, operators::LOGICAL_OR]
            .iter()
            .any(|one| called(&expression, one).is_some_and(|args| args.len() == 2));
        if !is_fold {
            return step(self, expression);
        }
        let Expr::Call(mut found) = expression.expr else { return expression };
        let last = found.args.pop().map(|it| step(self, it));
        found.args.extend(last);
        IdedExpr { id: expression.id, expr: Expr::Call(found) }
    }

    fn call(&self, found: CallExpr, cost: &mut u64) -> IdedExpr {
        let CallExpr { func_name, target, args } = found;
        match (func_name.as_str(), target) {
            (operators::CONDITIONAL, None) => {
                let mut args = args.into_iter();
                let condition = args.next().map(|it| self.rewrite(it, cost));
                let args = condition.into_iter().chain(args.map(|it| self.block(it)));
                call(&func_name, args.collect())
            }
            (operators::LOGICAL_AND | operators::LOGICAL_OR, None) => {
                let mut args = args.into_iter();
                let left = args.next().map(|it| self.rewrite(it, cost));
                call(&func_name, left.into_iter().chain(args.map(|it| self.block(it))).collect())
            }
            (name, None) if args.len() == 2 && name != "matches" => {
                self.binary(&func_name, args, cost)
            }
            (operators::LOGICAL_NOT | operators::NEGATE | operators::NOT_STRICTLY_FALSE, None) => {
                *cost += 1;
                call(&func_name, args.into_iter().map(|it| self.rewrite(it, cost)).collect())
            }
            (_, target) => self.function(func_name, target, args, cost),
        }
    }

    fn binary(&self, name: &str, args: Vec<IdedExpr>, cost: &mut u64) -> IdedExpr {
        let literal = args.iter().find_map(literal_cost);
        let has_number = args.iter().any(is_number);
        let is_listed = args.last().is_some_and(is_constant_list);
        let length = match args.last().map(|it| &it.expr) {
            Some(Expr::List(list)) => list.elements.len() as u64,
            _ => 1,
        };
        let mut plain = |name: &str, own: u64, args: Vec<IdedExpr>| {
            *cost += own;
            call(name, args.into_iter().map(|it| self.rewrite(it, cost)).collect())
        };
        match name {
            operators::ADD if has_number => plain(name, 1, args),
            operators::EQUALS | operators::NOT_EQUALS if literal.is_some() => {
                plain(name, literal.unwrap_or(1), args)
            }
            operators::IN if is_listed => plain(name, length, args),
            operators::ADD => charging(ADD, self.all(args, cost)),
            operators::EQUALS => charging(EQUALS, self.all(args, cost)),
            operators::NOT_EQUALS => {
                call(operators::LOGICAL_NOT, vec![charging(EQUALS, self.all(args, cost))])
            }
            operators::IN => charging(IN, self.all(args, cost)),
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
                if literal.is_none() =>
            {
                *cost += 1;
                let mut args = args.into_iter();
                let left = args.next().map(|it| self.argument(READ, it, cost));
                call(name, left.into_iter().chain(args.map(|it| self.rewrite(it, cost))).collect())
            }
            operators::OPT_INDEX | operators::OPT_SELECT => {
                charging(COPY, vec![plain(name, 1, args)])
            }
            operators::INDEX => {
                *cost += 1;
                let mut args = args.into_iter();
                let whole = args.next().map(|it| self.container(it, cost));
                call(name, whole.into_iter().chain(args.map(|it| self.rewrite(it, cost))).collect())
            }
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS => plain(name, 1, args),
            _ => self.function(name.to_owned(), None, args, cost),
        }
    }

    fn all(&self, args: Vec<IdedExpr>, cost: &mut u64) -> Vec<IdedExpr> {
        args.into_iter().map(|it| self.rewrite(it, cost)).collect()
    }

    fn function(
        &self,
        name: String,
        target: Option<Box<IdedExpr>>,
        mut args: Vec<IdedExpr>,
        cost: &mut u64,
    ) -> IdedExpr {
        let namespace = target.as_deref().is_some_and(is_namespace);
        let whole = match (name.as_str(), args.len() + usize::from(target.is_some())) {
            ("contains", 2) if target.is_some() => Some(CONTAINS),
            ("matches", 2) => Some(MATCHES),
            ("join", 1 | 2) if target.is_some() => Some(JOIN),
            ("replace", 3 | 4) if target.is_some() => Some(REPLACE),
            _ => None,
        };
        if let Some(whole) = whole.filter(|_| !namespace) {
            if let Some(target) = target {
                args.insert(0, *target);
            }
            return charging(whole, self.all(args, cost));
        }
        *cost += 1;
        let charge = match name.as_str() {
            "size" => PEEK,
            "distinct" => SQUARE,
            "range" if namespace => COUNT,
            _ => READ,
        };
        let args = args.into_iter().map(|it| match charge {
            COUNT => charging(COUNT, vec![self.rewrite(it, cost)]),
            _ => self.argument(charge, it, cost),
        });
        let args = args.collect();
        let target = target.map(|target| {
            Box::new(if namespace { *target } else { self.argument(charge, *target, cost) })
        });
        of(Expr::Call(CallExpr { func_name: name, target, args }))
    }
}
