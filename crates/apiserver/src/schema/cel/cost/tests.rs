//! Tests of the limits of evaluations.

use ::cel::Value as Cel;
use serde_json::{Value, json};

use super::{super::compile, *};
use crate::schema::Schema;

/// A limit that an evaluation without tests of speed reaches soon.
const LIMIT: u64 = 30_000;

fn object() -> Value {
    let numbers: Vec<u64> = (0..1_000).collect();
    json!({"l": numbers, "s": "a".repeat(100_000), "nested": {"deep": {"l": numbers}}})
}

fn evaluated(expression: &str, limit: u64) -> Result<Cel, Failed> {
    let whole = object();
    let mut context = super::super::context(&[("object", &whole)]);
    context.add_variable_as_val(METER, Box::new(Meter::new(limit)));
    for name in ["l", "s"] {
        let value = super::super::value::from_json(&Schema::default(), &whole[name]);
        context.add_variable_from_value(name, value);
    }
    let program = compile(expression).expect("the expression compiles");
    Budget::of_object().run(&program, &context)
}

#[test]
fn an_expression_that_would_run_for_minutes_is_cancelled() {
    for expression in [
        "l.all(a, l.all(b, l.all(c, a + b + c >= 0)))",
        "l.all(a, l.all(b, l.all(c, c.missing == 1)))",
        "l.all(a, l.all(b, l.all(c, c.missing == 1) || true))",
        "l.exists(a, l.exists(b, l.exists(c, a + b + c < 0)))",
        "l.exists_one(a, l.exists_one(b, l.exists_one(c, true)))",
        "l.map(a, l.map(b, l.map(c, c))).size() == 1000",
        "l.filter(a, l.filter(b, l.filter(c, true) == l) == l) == l",
        "l.all(a, l.all(b, s != s + 'b'))",
        "l.map(a, s + s + s)",
        "l.map(a, l + l)",
        "l.map(a, object)",
        "l.all(a, [object, object].size() == 2)",
        "l.all(a, {'k': object}.size() == 1)",
        "l.all(a, object.?nested.hasValue())",
        "l.all(a, optional.of(object).nested.deep.hasValue())",
        "l.all(a, object == object)",
        "l.all(a, l in [l])",
        "l.all(a, a in l)",
        "l.all(a, s <= s)",
        "l.all(a, s.contains(s))",
        "l.all(a, s.lowerAscii().startsWith('a'))",
        "l.all(a, s.split('').size() > a)",
        "l.all(a, s.matches('(a|b|ab)*c') == false)",
        "l.all(a, 'a'.matches('(\\\\w{100}){10}' + string(a)) == false)",
        "s.replace('a', s).size() > 0",
        "s.replace('', s, 5000).size() > 0",
        "lists.range(1000000).size() == 1000000",
        "l.map(a, lists.range(1000)).size() == 1000",
        "lists.range(9999).distinct().size() == 9999",
        "l.all(a, l.sort().reverse() != l)",
    ] {
        assert_eq!(evaluated(expression, LIMIT), Err(Failed::Exceeded), "{expression}");
    }
}

#[test]
fn an_error_does_not_hide_that_the_limit_is_exceeded() {
    for expression in [
        "l.all(a, l.all(b, l.all(c, true))) || true",
        "[1].all(x, l.all(a, l.all(b, l.all(c, true)))) ? true : true",
        "!(l.exists(a, l.exists(b, l.exists(c, false)))) || 1 / 0 == 1",
    ] {
        assert_eq!(evaluated(expression, LIMIT), Err(Failed::Exceeded), "{expression}");
    }
}

#[test]
fn the_limit_is_the_one_of_kube_apiserver() {
    for (expression, result) in [
        ("s.contains('x') || s.contains(s.substring(0, 90))", Ok(Cel::Bool(true))),
        ("s.contains(s.substring(0, 900))", Ok(Cel::Bool(true))),
        ("s.contains(s.substring(0, 990))", Err(Failed::Exceeded)),
        ("lists.range(9).all(a, l.all(b, true))", Ok(Cel::Bool(true))),
    ] {
        assert_eq!(evaluated(expression, MAX_COST), result, "{expression}");
    }
}

#[test]
fn usual_expressions_have_their_values() {
    for expression in [
        "l.all(a, a >= 0) && l.exists(a, a == 7) && l.exists_one(a, a == 7)",
        "l.filter(a, a < 3) == [0, 1, 2]",
        "l.map(a, a < 2, a + 1) == [1, 2]",
        "[1, 2].map(a, [3].map(b, a + b)) == [[4], [5]]",
        "'x' + 'y' == 'xy' && [1] + [2] == [1, 2] && 1 + 2 == 3 && 1.5 + 1.0 == 2.5",
        "1 in [1, 2] && 'a' in {'a': 1} && !('b' in {'a': 1}) && 7 in l",
        "'abc'.contains('b') && 'abc'.matches('^a.c$') && matches('abc', 'b')",
        "'aXbXc'.replace('X', '-') == 'a-b-c' && 'aXbXc'.replace('X', '-', 1) == 'a-bXc'",
        "'aXb'.replace('X', '-', -1) == 'a-b' && ''.replace('', 'x') == 'x'",
        "size(l) == 1000 && s.size() == 100000 && 'é'.size() == 1",
        "object.?missing.orValue(3) == 3 && object.nested.?deep.hasValue()",
        "object.nested.deep.l[3] == 3 && has(object.nested) && !has(object.none)",
        "[3, 1, 2].sort() == [1, 2, 3] && [1, 1].distinct() == [1] && lists.range(2) == [0, 1]",
        "[[2], [1]].sortBy(x, x[0]) == [[1], [2]]",
        "[{'a': 1}].exists(x, x.a == 1) && {'k': 1}.all(k, k == 'k')",
        "(true ? 'a' : 'b') < 'b' && 'a' != 'b' && null == null && !(null != null)",
        "l.exists(a, a.missing == 1 || a == 3)",
        "-1 < 0 && !false && (1 < 2 || 1 / 0 == 1) && [1, 2][1] == 2 && {'a': {'b': 1}}.a.b == 1",
        "quantity('2Gi') == quantity('2Gi') && isIP('::1') && ip('::1').family() == 6",
        "!format.dns1123Label().validate('a-b').hasValue()",
        "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-02T00:00:00Z')",
        "[1, 2].exists(x, [x].exists(y, y == 2)) && optional.none().orValue(1) == 1",
    ] {
        assert_eq!(evaluated(expression, MAX_COST), Ok(Cel::Bool(true)), "{expression}");
    }
}

#[test]
fn expressions_share_a_budget() {
    let mut context = super::super::context(&[("object", &object())]);
    context.add_variable_as_val(METER, Box::new(Meter::new(LIMIT)));
    let program = compile("object.l.all(a, object.l.all(b, true))").unwrap();
    let mut budget = Budget { left: LIMIT * 2 + 10 };
    let results: Vec<_> = (0..3).map(|_| budget.run(&program, &context)).collect();
    assert_eq!(results, [Err(Failed::Exceeded), Err(Failed::Exceeded), Err(Failed::OutOfBudget)]);
}

#[test]
fn the_longest_expressions_fit_into_the_stack() {
    for (part, end, count) in [
        ("'a' + ", "s == s", 590),
        ("'a' == s || ", "s == s", 145),
        ("s == '' ? true : ", "s == s", 80),
        ("!", "(s != s)", 21),
    ] {
        let long = format!("{}{end}", part.repeat(count));
        assert_eq!(evaluated(&long, MAX_COST).map(drop), Ok(()), "{part} {count} times");
    }
    let deep = format!("{}1{} == [[1]]", "[".repeat(22), "]".repeat(22));
    assert_eq!(evaluated(&deep, MAX_COST), Ok(Cel::Bool(false)));
}
