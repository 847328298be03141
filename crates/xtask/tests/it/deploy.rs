//! The manifests in the tree are those that the generator writes.

use std::fs;

#[test]
fn the_manifests_are_up_to_date() {
    let folder = crate::workspace().join("deploy");
    for (name, text) in xtask::manifests::files() {
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert!(text.starts_with("# Generated "), "{name} says that it is generated");
        assert_eq!(found, text, "{name}: run `make gen`");
    }
}

#[test]
fn the_chart_has_the_objects_of_the_manifests() {
    let files = xtask::manifests::files();
    let text = |name: &str| {
        let found = files.iter().find(|(path, _)| path == name);
        found.map(|(_, text)| text.clone()).unwrap_or_default()
    };
    let plain = text("machine-config-operator.yaml");
    let chart = text("helm/mco/templates/machine-config-operator.yaml");
    assert!(chart.contains("image: \"{{ .Values.image }}\""), "{chart}");
    for value in ["profile", "joinTokens"] {
        assert!(chart.contains(&format!("{{{{- with .Values.{value} }}}}\n")), "{chart}");
        assert!(text("helm/mco/values.yaml").contains(&format!("\n{value}: \"\"\n")));
    }
    assert!(!chart.contains("CHART"), "{chart}");
    let settings = ["with .Values", "- end", "{{ . }}", ".Values.image", "localhost/mco"];
    let same = |text: &str| {
        let lines = text.lines().filter(|line| !settings.iter().any(|it| line.contains(it)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(same(&chart), same(&plain));
}
