use serde_json::json;

use super::*;

fn nodes() -> Value {
    json!({"items": [
        {"metadata": {"name": "a", "annotations": {"x.io/config": "one"}}, "count": 2,
         "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "status": "False"}]}},
        {"metadata": {"name": "b"}, "count": 10, "list": [1, 2, 3]},
    ]})
}

#[test]
fn templates_give_the_text_that_kubectl_gives() {
    let rows = [
        ("{.items[*].metadata.name}", "a b"),
        (".items[0].metadata.name", "a"),
        ("{.items[-1].metadata.name}", "b"),
        (r"{.items[0].metadata.annotations.x\.io/config}", "one"),
        (r"{.items[0].metadata.annotations['x\.io/config']}", "one"),
        ("{.items[?(@.metadata.name=='b')].count}", "10"),
        ("{.items[?(@.count>2)].metadata.name}", "b"),
        ("{.items[?(@.list)].list[0:2]}", "1 2"),
        ("{.items[0].status.conditions[?(@.type==\"Ready\")].status}", "True"),
        ("{range .items[*]}{.metadata.name}{\"\\t\"}{.count}{\"\\n\"}{end}", "a\t2\nb\t10\n"),
        ("{range .items[*]}{@.metadata.name}:{range .list[*]}{@},{end};{end}", "a:;b:1,2,3,;"),
        ("name={.items[0].metadata.name}!", "name=a!"),
        ("{.items[0].metadata}", r#"{"annotations":{"x.io/config":"one"},"name":"a"}"#),
        ("{..name}", "a b"),
        ("{.nothing.at.all}", ""),
        ("{$.items[1].metadata.name}", "b"),
    ];
    for (template, want) in rows {
        assert_eq!(Template::parse(template).unwrap().render(&nodes()), want, "{template}");
    }
}

#[test]
fn invalid_templates_are_refused() {
    for bad in ["{.a", "{.a[}", "{range .a}", "{end}", "{.a[x]}", "{\"a}", "{.a[?(@.b==c)]}"] {
        assert!(Template::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn objects_are_compared_by_numbers_and_texts() {
    let mut items = nodes()["items"].as_array().unwrap().clone();
    items.reverse();
    items.sort_by(|left, right| Path::parse("{.count}").unwrap().compare(left, right));
    assert_eq!(items[0]["count"], 2);
    items.sort_by(|left, right| Path::parse(".list").unwrap().compare(left, right));
    assert_eq!(items[0]["metadata"]["name"], "a", "objects without the field come first");
}
