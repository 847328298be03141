//! The choice of a cluster: flags, the environment, default files, and the words about it.

use std::path::Path;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::json;

use crate::{Folder, health::Cluster, mco};

/// A kubeconfig whose API server does not answer.
const DEAD: &str = "apiVersion: v1\nkind: Config\ncurrent-context: dead\n\
    contexts: [{name: dead, context: {cluster: dead, user: dead}}]\n\
    clusters: [{name: dead, cluster: {server: 'http://127.0.0.1:1'}}]\n\
    users: [{name: dead, user: {}}]\n";

#[tokio::test]
async fn a_cluster_is_chosen_on_the_embedded_api_server() {
    a_cluster_is_chosen(Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_cluster_is_chosen_on_a_real_kube_apiserver() {
    if let Some(cluster) = Cluster::real().await {
        a_cluster_is_chosen(cluster).await;
    }
}

/// Runs a command in a directory; returns exit code, output and errors.
fn run(folder: &Folder, kubeconfig: Option<&str>, args: &[&str]) -> (i32, String, String) {
    let command = folder.mco(args).env("HOME", folder.path("home")).env_remove("KUBECONFIG");
    let command = command.env_remove("KUBERNETES_SERVICE_HOST");
    let command = match kubeconfig {
        Some(value) => command.env("KUBECONFIG", value),
        None => command,
    };
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

async fn a_cluster_is_chosen(cluster: Cluster) {
    let live = {
        #[expect(clippy::disallowed_methods, reason = "the test copies the kubeconfig")]
        std::fs::read(&cluster.kubeconfig).unwrap()
    };
    let context = context_of(&cluster.kubeconfig);
    let object = "apiVersion: v1\nkind: Namespace\nmetadata: {name: chosen}\n";
    let folder = Folder::new(&[
        ("toy/kubeconfig", &live),
        ("live", &live),
        ("dead", DEAD.as_bytes()),
        ("object.yaml", object.as_bytes()),
    ]);
    let get = |kubeconfig: Option<&str>, flags: &[&str]| {
        let (code, out, errors) =
            run(&folder, kubeconfig, &[&["get", "ns", "default", "-o", "name"], flags].concat());
        (code, out + &errors)
    };
    let found = (0, "namespace/default\n".to_owned());
    // A flag wins over the environment, and one file of a list may be missing.
    assert_eq!(get(Some("dead"), &["--dir", "toy"]), found);
    assert_eq!(get(Some("dead"), &["--kubeconfig", "live"]), found);
    assert_eq!(get(Some("gone:dead:live"), &["--context", &context]), found);
    let (code, text) = get(Some("dead:live"), &[]);
    assert!(code == 1 && text.contains("the API server is unreachable"), "{text}");
    let (code, text) = get(Some("live"), &["--context", "typo"]);
    let want =
        format!("error: unknown context \"typo\"\nhint: the kubeconfig has the contexts {context}");
    assert!(code == 1 && text.starts_with(&want), "{text}");
    // Default files: the cluster of `mco up` comes before that of the home directory.
    let (code, text) = get(None, &[]);
    assert!(code == 1 && text.starts_with("error: no cluster in .mco\nhint: "), "{text}");
    folder.write("home/.kube/config", &live);
    assert_eq!(get(None, &[]), found);
    folder.write(".mco/kubeconfig", DEAD.as_bytes());
    assert_eq!(get(None, &[]).0, 1);
    let (code, text) = get(None, &["--dir", "nowhere"]);
    assert!(code == 1 && text.starts_with("error: no cluster in nowhere\n"), "{text}");

    let (code, out, errors) = run(&folder, Some("live"), &["apply", "-f", "object.yaml"]);
    assert_eq!((code, out.as_str()), (0, "namespace/chosen created\n"), "{errors}");
    assert!(errors.starts_with(&format!("note: writing to context {context} at https://")));
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    cluster.put(namespaces, "chosen", json!({})).await;
}

#[tokio::test]
async fn a_wrong_cluster_is_explained_on_the_embedded_api_server() {
    a_wrong_cluster_is_explained(&Cluster::embedded().await);
}

#[tokio::test]
async fn a_wrong_cluster_is_explained_on_a_real_kube_apiserver() {
    if let Some(cluster) = Cluster::real().await {
        a_wrong_cluster_is_explained(&cluster);
    }
}

/// The cluster has none of our kinds.
fn a_wrong_cluster_is_explained(cluster: &Cluster) {
    let live = {
        #[expect(clippy::disallowed_methods, reason = "the test copies the kubeconfig")]
        std::fs::read_to_string(&cluster.kubeconfig).unwrap()
    };
    let mut file: serde_json::Value =
        serde_json::to_value(kube::config::Kubeconfig::from_yaml(&live).unwrap()).unwrap();
    for user in file["users"].as_array_mut().unwrap() {
        user["user"] = json!({"token": "wrong"});
    }
    let other_user = file.to_string();
    let authority = mco_testkit::pki::Authority::new("other").unwrap();
    let pem = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        authority.pair().certificate.as_bytes(),
    );
    for entry in file["clusters"].as_array_mut().unwrap() {
        let members = entry["cluster"].as_object_mut().unwrap();
        members.remove("certificate-authority");
        members.insert("certificate-authority-data".to_owned(), json!(pem));
    }
    let folder = Folder::new(&[
        ("user", other_user.as_bytes()),
        ("authority", file.to_string().as_bytes()),
        ("empty", b""),
        ("change.yaml", crate::config("50-a", "kernelArguments: [a]").as_bytes()),
    ]);
    let own = cluster.kubeconfig.display().to_string();
    // One error and one hint, whatever is asked.
    let check = |kubeconfig: &str, words: &str, want: &str, hint: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--kubeconfig", kubeconfig]).collect();
        let (code, out, errors) = run(&folder, None, &words);
        assert!(code != 0 && out.is_empty(), "{words:?}: {code} {out}");
        let lines: Vec<&str> = errors.lines().collect();
        let [error, hinted] = lines[..] else { panic!("{words:?}: {errors}") };
        assert!(error.starts_with(&format!("error: {want}")), "{words:?}: {errors}");
        assert!(hinted.starts_with("hint: ") && hinted.contains(hint), "{words:?}: {errors}");
    };
    let commands = [
        "status",
        "status -w",
        "get mcp",
        "rollout status worker",
        "rollout history worker",
        "plan -f change.yaml",
        "why worker",
        "diff worker",
        "cat worker:/etc/motd",
        "drift",
    ];
    for words in commands {
        check(&own, words, "the cluster does not have the kind", "`mco doctor` says");
    }
    for words in ["status", "get mcp", "rollout status worker", "diff worker"] {
        check("user", words, "the API server does not accept the credentials", "--context");
        check("authority", words, "the API server is not the one of", "fetch the kubeconfig again");
        check("empty", words, "the kubeconfig has no current context", "`mco up`");
    }
}

/// Returns the current context of a kubeconfig.
#[expect(clippy::disallowed_methods, reason = "the test reads the kubeconfig")]
fn context_of(kubeconfig: &Path) -> String {
    let text = std::fs::read_to_string(kubeconfig).unwrap();
    let file = kube::config::Kubeconfig::from_yaml(&text).unwrap();
    file.current_context.unwrap()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test calls the program by other names")]
fn hints_name_the_program_as_it_was_called() {
    use std::os::unix::process::CommandExt as _;
    for (called, named) in [
        ("target/release/mco", "target/release/mco"),
        ("/usr/local/bin/kubectl-mco", "kubectl mco"),
        ("mco", "mco"),
    ] {
        let folder = Folder::new(&[]);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mco"));
        command.arg0(called).args(["get", "mc", "--dir", "gone"]).current_dir(folder.path("."));
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(&format!("start one with `{named} up`")), "{called}: {text}");
    }
    let output = mco(&["get", "mc", "--dir", "a", "--kubeconfig", "b"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "the flags exclude each other");
}
