//! The mutations.

use super::Mutant;

/// All mutations.
pub const ALL: &[Mutant] = &[
    Mutant {
        name: "drain-acknowledged-although-open",
        file: "crates/controller/src/drain.rs",
        find: "if !is_cordoned(&now) || request(&now) != request(node) {",
        replace: "if request(&now) != request(node) {",
        tests: &["-p", "mco-controller", "--test", "it", "races::"],
    },
    Mutant {
        name: "drain-acknowledged-without-version",
        file: "crates/controller/src/drain.rs",
        find: "self.patch(node, patch, Precondition::Unchanged(&version))",
        replace: "drop(version);\n        self.patch(node, patch, Precondition::Any)",
        tests: &["-p", "mco-controller", "--test", "it", "races::"],
    },
    Mutant {
        name: "refused-eviction-is-success",
        file: "crates/controller/src/drain/evict.rs",
        find: "\"Eviction refused\");\n            Err(error)",
        replace: "\"Eviction refused\");\n            Ok(())",
        tests: &["-p", "mco-controller", "--test", "it", "races::"],
    },
    Mutant {
        name: "controller-without-fence",
        file: "crates/controller/src/lib.rs",
        find: "let client = candidate.fence.guard(client);",
        replace: "",
        tests: &["-p", "mco-controller", "--test", "it", "races::"],
    },
    Mutant {
        name: "operator-without-fence",
        file: "crates/operator/src/lib.rs",
        find: "candidate.fence.guard(client)",
        replace: "client",
        tests: &["-p", "mco-operator", "--test", "it"],
    },
    Mutant {
        name: "pruning-ignores-nodes",
        file: "crates/controller/src/unused_configs.rs",
        find: "References::of(&nodes, &by_pool",
        replace: "References::of(&nodes[..0], &by_pool",
        tests: &["-p", "mco-controller", "--test", "it", "rendered::embedded"],
    },
    Mutant {
        name: "pruning-ignores-machine-config-nodes",
        file: "crates/controller/src/unused_configs.rs",
        find: ".with_machine_config_nodes(machine_config_nodes.iter().map(|node| &**node))",
        replace: ".with_machine_config_nodes(machine_config_nodes.iter().take(0).map(|node| &**node))",
        tests: &["-p", "mco-controller", "--test", "it", "rendered::embedded"],
    },
    Mutant {
        name: "render-without-size-limit",
        file: "crates/controller/src/render/run.rs",
        find: "rendered.check_size(&object).map_err(|error| RenderFailure::inputs(&error))?",
        replace: "rendered.check_size(&object).unwrap_or_default()",
        tests: &["-p", "mco-controller", "--test", "it", "rendering::embedded"],
    },
    Mutant {
        name: "pool-status-not-watched",
        file: "crates/controller/src/enqueue.rs",
        find: "        || before.status != after.status\n",
        replace: "",
        tests: &["-p", "mco-controller", "--test", "it", "pools::embedded"],
    },
    Mutant {
        name: "cut-watch-resumes-unchecked",
        file: "crates/cluster/src/watch/progress.rs",
        find: "                self.forget_failures(lasted);\n                self.probe();",
        replace: "                self.forget_failures(lasted);",
        tests: &["-p", "mco-cluster", "--lib", "watch::"],
    },
    Mutant {
        name: "restored-status-not-written",
        file: "crates/daemon/src/machine_config_node.rs",
        find: "self.replace(found);",
        replace: "self.observe(found);",
        tests: &["-p", "mco-daemon", "--lib", "machine_config_node::"],
    },
];
