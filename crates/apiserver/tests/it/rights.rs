//! Rights by roles, tokens of service accounts, and admission policies.

use kube::{Client, client::Body};
use mco_apiserver::{ApiServer, Authorization, Listener, Settings};
use serde_json::{Value, json};

/// Sends a request and returns the code and the body of its answer.
async fn send(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = http::Request::builder().method(method).uri(path);
    let request = request.header("content-type", media);
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.unwrap();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn create(client: &Client, path: &str, body: Value) -> Value {
    let (code, answer) = send(client, "POST", path, &body).await;
    assert_eq!(code, 201, "{path}: {answer}");
    answer
}

async fn server() -> ApiServer {
    let settings = Settings { authorization: Authorization::Roles, ..Settings::default() };
    ApiServer::in_memory(settings).await.unwrap()
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// Lets the account `robot` read pods in the namespace `default`.
async fn let_robot_read_pods(admin: &Client) {
    let rules =
        json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    create(admin, &format!("{RBAC}/roles"), role).await;
    let binding = json!({"metadata": {"name": "reads"},
        "roleRef": {"kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    create(admin, &format!("{RBAC}/rolebindings"), binding).await;
}

#[tokio::test]
async fn an_account_may_do_what_its_roles_allow() {
    let api = server().await;
    let admin = Client::new(api.clone(), "default");
    let robot = Client::new(api.for_account("default", "robot"), "default");
    let pods = "/api/v1/namespaces/default/pods";
    let (code, refused) = send(&robot, "GET", pods, &Value::Null).await;
    assert_eq!(code, 403);
    assert_eq!(
        refused["message"],
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \
         \"pods\" in API group \"\" in the namespace \"default\""
    );
    assert_eq!(refused["reason"], "Forbidden");
    let_robot_read_pods(&admin).await;
    assert_eq!(send(&robot, "GET", pods, &Value::Null).await.0, 200);
    let (code, _) = send(&robot, "GET", "/api/v1/namespaces/kube-system/pods", &Value::Null).await;
    assert_eq!(code, 403, "the binding is of another namespace");
    let (code, refused) = send(&robot, "DELETE", &format!("{pods}/p"), &Value::Null).await;
    assert_eq!((code, refused["details"]["name"].as_str()), (403, Some("p")));
    assert_eq!(send(&robot, "GET", "/version", &Value::Null).await.0, 200);
    let (code, refused) = send(&robot, "GET", "/metrics", &Value::Null).await;
    assert_eq!(code, 403);
    let expected =
        "forbidden: User \"system:serviceaccount:default:robot\" cannot get path \"/metrics\"";
    assert_eq!(refused["message"], expected);
    let (code, _) =
        send(&admin, "DELETE", &format!("{RBAC}/rolebindings/reads"), &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(send(&robot, "GET", pods, &Value::Null).await.0, 403, "the right was taken away");
}

#[tokio::test]
async fn everybody_may_do_everything_unless_roles_are_enforced() {
    let api = ApiServer::in_memory(Settings::default()).await.unwrap();
    let robot = Client::new(api.for_account("default", "robot"), "default");
    assert_eq!(send(&robot, "GET", "/api/v1/nodes", &Value::Null).await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_authenticates_until_its_account_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let api = server().await;
    let admin = Client::new(api.clone(), "default");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&admin, accounts, json!({"metadata": {"name": "robot"}})).await;
    let_robot_read_pods(&admin).await;
    let issued = create(&admin, &format!("{accounts}/robot/token"), json!({"spec": {}})).await;
    let token = issued["status"]["token"].as_str().unwrap().to_owned();

    let listener = Listener::bind(api, dir.path(), "127.0.0.1:0".parse().unwrap()).await.unwrap();
    tokio::spawn(listener.serve(std::future::pending()));
    let kubeconfig = kube::config::Kubeconfig::read_from(dir.path().join("kubeconfig")).unwrap();
    let with = |token: &str| {
        let mut kubeconfig = kubeconfig.clone();
        let user =
            kubeconfig.auth_infos.iter_mut().find(|it| it.name == "mco-admin-token").unwrap();
        user.auth_info.as_mut().unwrap().token = Some(token.to_owned().into());
        kubeconfig
    };
    let client = |kubeconfig| async {
        let context = Some("mco-token".to_owned());
        let options = kube::config::KubeConfigOptions { context, ..Default::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        Client::try_from(config).unwrap()
    };
    let robot = client(with(&token)).await;
    let pods = "/api/v1/namespaces/default/pods";
    assert_eq!(send(&robot, "GET", pods, &Value::Null).await.0, 200);
    assert_eq!(send(&robot, "GET", "/api/v1/nodes", &Value::Null).await.0, 403);
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = create(&robot, who, json!({})).await;
    let user = &answer["status"]["userInfo"];
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    let wrong = client(with(&format!("{token}x"))).await;
    assert_eq!(send(&wrong, "GET", pods, &Value::Null).await.0, 401);
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let asked = json!({"spec": {"token": token}});
    let answer = create(&admin, reviews, asked.clone()).await;
    assert_eq!(answer["status"]["authenticated"], true);
    assert_eq!(send(&admin, "DELETE", &format!("{accounts}/robot"), &Value::Null).await.0, 200);
    assert_eq!(send(&robot, "GET", pods, &Value::Null).await.0, 401);
    let answer = create(&admin, reviews, asked).await;
    assert_eq!(answer["status"].get("authenticated"), None);
}

#[tokio::test]
async fn a_token_of_a_pod_names_its_node_to_policies() {
    let api = server().await;
    let admin = Client::new(api.clone(), "default");
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    create(&admin, accounts, json!({"metadata": {"name": "robot"}})).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
        "nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    create(&admin, "/api/v1/namespaces/default/pods", pod).await;
    let bound =
        json!({"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p"}}});
    let issued = create(&admin, &format!("{accounts}/robot/token"), bound).await;
    let asked = json!({"spec": {"token": issued["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let answer = create(&admin, reviews, asked).await;
    let extra = &answer["status"]["user"]["extra"];
    assert_eq!(extra["authentication.kubernetes.io/node-name"], json!(["n1"]));
    assert_eq!(extra["authentication.kubernetes.io/pod-name"], json!(["p"]));
}

#[tokio::test]
async fn a_policy_denies_writes_until_it_is_deleted() {
    let api = server().await;
    let admin = Client::new(api, "default");
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "request.userInfo.username != 'system:admin'",
            "message": "not by the administrator"}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    create(&admin, &format!("{policies}/validatingadmissionpolicies"), policy).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    create(&admin, maps, json!({"metadata": {"name": "before"}})).await;
    let binding = json!({"metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let bindings = format!("{policies}/validatingadmissionpolicybindings");
    create(&admin, &bindings, binding).await;
    let (code, refused) = send(&admin, "POST", maps, &json!({"metadata": {"name": "a"}})).await;
    assert_eq!(code, 422);
    assert_eq!(
        refused["message"],
        "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied \
         request: not by the administrator"
    );
    assert_eq!(send(&admin, "DELETE", &format!("{bindings}/b"), &Value::Null).await.0, 200);
    create(&admin, maps, json!({"metadata": {"name": "a"}})).await;
}

#[tokio::test]
async fn a_policy_about_deletes_holds_for_a_whole_collection() {
    let admin = Client::new(server().await, "default");
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"],
        "resources": ["configmaps"]});
    let spec = json!({"matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "oldObject.metadata.name != 'kept'"}]});
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    create(&admin, &format!("{policies}/validatingadmissionpolicies"), policy).await;
    let binding = json!({"metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    create(&admin, &format!("{policies}/validatingadmissionpolicybindings"), binding).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    create(&admin, maps, json!({"metadata": {"name": "kept"}})).await;
    for path in [format!("{maps}/kept"), maps.to_owned()] {
        assert_eq!(send(&admin, "DELETE", &path, &Value::Null).await.0, 422, "{path}");
    }
    assert_eq!(send(&admin, "GET", &format!("{maps}/kept"), &Value::Null).await.0, 200);
}

#[tokio::test]
async fn a_caller_who_acts_for_another_has_the_rights_and_claims_of_that_one() {
    let api = server().await;
    let admin = Client::new(api.clone(), "default");
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}]);
    let role = json!({"metadata": {"name": "acting"}, "rules": rules});
    create(&admin, &format!("{rbac}/clusterroles"), role).await;
    let binding = json!({"metadata": {"name": "acting"},
        "roleRef": {"kind": "ClusterRole", "name": "acting"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]});
    create(&admin, &format!("{rbac}/clusterrolebindings"), binding).await;
    let robot = Client::new(api.for_account_on("default", "robot", "n1"), "default");
    let ask = async |user: &str| {
        let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
            .header("content-type", "application/json")
            .header("impersonate-user", user);
        let response = robot.send(request.body(Body::from(b"{}".to_vec())).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await.unwrap();
        (code, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let (code, answer) = ask("jane").await;
    let info = &answer["status"]["userInfo"];
    assert_eq!((code, &info["username"], info.get("extra")), (201, &json!("jane"), None));
    let (code, refused) = ask("system:serviceaccount:default:other").await;
    let message = refused["message"].as_str().unwrap();
    assert_eq!(code, 403);
    assert!(message.contains("cannot impersonate resource \"serviceaccounts\""), "{message}");
}
