//! Answers reviews, and requests for tokens of service accounts.

use http::{Response, StatusCode};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::{Body, Call, Server, answer};
use crate::{
    authorize::Access,
    clock,
    failure::{Failure, Fault},
    object::{self, at, text},
    policy::Kind,
    review::{self, Claims, Identity, Review},
    service::Authorization,
    store::Key,
    token::{self, Bound},
};

/// Shortest and longest validity of a token, in seconds.
const TOKEN_SECONDS: (i64, i64) = (600, 1 << 32);

impl Server {
    /// Answers a review.
    pub(super) fn review(
        &self,
        review: Review,
        question: &Value,
        namespace: &str,
        caller: &Identity,
        claims: &Claims,
    ) -> Result<Response<Body>, Failure> {
        let mut question = review::read(review, question).map_err(|why| {
            let kind = review.kind;
            Failure::bad_request(format!(
                "{kind} in version \"v1\" cannot be handled as a {kind}: {why}"
            ))
        })?;
        if review.namespaced {
            object::set_meta(&mut question, "namespace", namespace);
        }
        let status = match review.kind {
            "SelfSubjectReview" => {
                let now = clock::rfc3339(self.clock.now());
                object::set_meta(&mut question, "creationTimestamp", now);
                json!({"userInfo": review::user_info(caller, claims)})
            }
            "TokenReview" => self.token_status(&question)?,
            "SelfSubjectRulesReview" => {
                let asked = text(&question, &["spec", "namespace"]);
                if asked.is_empty() {
                    return Err(Failure::bad_request("no namespace on request"));
                }
                let status = self.rules_status(caller, asked);
                object::map_of(&mut question).insert("spec".into(), json!({}));
                status
            }
            _ => self.access_status(review, &question, namespace, caller)?,
        };
        let answer = review::answered(question, status);
        Ok(answer::json(StatusCode::CREATED, &answer))
    }

    fn access_status(
        &self,
        review: Review,
        question: &Value,
        namespace: &str,
        caller: &Identity,
    ) -> Result<Value, Failure> {
        let faults = review::check(review, question, namespace);
        if !faults.is_empty() {
            return Err(Failure::invalid_kind(review.group, "", "", &faults));
        }
        let spec = question.get("spec").unwrap_or(&Value::Null);
        let is_self = review.kind == "SelfSubjectAccessReview";
        if is_self && self.authorization == Authorization::Everything {
            return Ok(review::decision(true, ""));
        }
        let asked = Identity {
            user: text(spec, &["user"]).to_owned(),
            groups: at(spec, &["groups"])
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|group| group.as_str().map(str::to_owned))
                .collect(),
        };
        let decision = self.decide(if is_self { caller } else { &asked }, &Access::asked(spec));
        Ok(review::decision(decision.is_allowed, &decision.reason))
    }

    fn rules_status(&self, caller: &Identity, namespace: &str) -> Value {
        let (mut resources, mut paths) = (Vec::new(), Vec::new());
        for mut rule in self.rules_of(caller, namespace) {
            let is_path = rule.get("nonResourceURLs").is_some();
            let map = object::map_of(&mut rule);
            map.retain(|_, value| value.as_array().is_some_and(|list| !list.is_empty()));
            if is_path { paths.push(rule) } else { resources.push(rule) }
        }
        json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
    }

    fn token_status(&self, question: &Value) -> Result<Value, Failure> {
        let given = text(question, &["spec", "token"]);
        if given.is_empty() {
            let message = "token is required for TokenReview in authentication";
            return Err(Failure::bad_request(message));
        }
        let audiences = at(question, &["spec", "audiences"]).and_then(Value::as_array);
        let is_ours = audiences.is_none_or(|list| list.iter().any(|it| it == token::ISSUER));
        match self.account_of_token(given).filter(|_| is_ours) {
            Some((caller, claims)) => {
                let user = review::user_info(&caller, &claims);
                Ok(json!({"authenticated": true, "user": user, "audiences": [token::ISSUER]}))
            }
            None => Ok(json!({"user": {}, "error": "invalid bearer token"})),
        }
    }

    /// Issues a token of a service account.
    pub(super) fn issue_token(
        &self,
        call: &Call,
        asked: &Value,
    ) -> Result<Response<Body>, Failure> {
        let review = Review {
            group: "authentication.k8s.io",
            plural: "",
            kind: "TokenRequest",
            namespaced: true,
        };
        let mut asked = review::read(review, asked).map_err(Failure::bad_request)?;
        let key = call.key();
        let account = self.store.get(&call.resource.collection, &key);
        let account = account.ok_or_else(|| Failure::not_found(&call.resource, &key.name))?;
        for (field, value) in [("name", &key.name), ("namespace", &key.namespace)] {
            let given = object::meta(&asked, field);
            if !given.is_empty() && given != value {
                let rule = format!("must match the service account {field} if specified");
                let fault = Fault::invalid(format!("metadata.{field}"), &json!(given), &rule);
                return Err(Failure::invalid_kind(review.group, review.kind, &key.name, &[fault]));
            }
        }
        let spec = object::map_mut(object::map_of(&mut asked), "spec");
        let seconds = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600);
        spec.insert("expirationSeconds".into(), seconds.into());
        if spec.get("audiences").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            spec.insert("audiences".into(), json!([token::ISSUER]));
        }
        let audiences = spec.get("audiences").cloned().unwrap_or_default();
        let now = self.clock.now();
        for (field, value) in [
            ("name", json!(key.name)),
            ("namespace", json!(key.namespace)),
            ("uid", json!(&*account.head.uid)),
            ("creationTimestamp", json!(clock::rfc3339(now))),
        ] {
            object::set_meta(&mut asked, field, value);
        }
        check_validity(seconds)?;
        let kind = Kind { group: review.group, version: "v1", name: review.kind };
        self.check_posted(call, kind, &asked)?;
        let bound = self.bound(&key, at(&asked, &["spec", "boundObjectRef"]))?;
        let bits = (self.entropy)();
        let claims = token::claims(&account.value(), &bound, &audiences, seconds, now, bits);
        let ends = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let status = json!({"token": self.tokens.sign(&claims),
            "expirationTimestamp": clock::rfc3339(ends)});
        Ok(answer::json(StatusCode::CREATED, &review::answered(asked, status)))
    }

    /// Returns the objects that a token is bound to.
    fn bound(&self, account: &Key, reference: Option<&Value>) -> Result<Bound, Failure> {
        let Some(reference) = reference.filter(|it| !it.is_null()) else {
            return Ok(Bound::default());
        };
        let of = |field| text(reference, &[field]);
        let (word, plural, namespace) = match (of("kind"), of("apiVersion")) {
            ("Pod", "v1") => ("pod", "pods", account.namespace.as_str()),
            ("Secret", "v1") => ("secret", "secrets", account.namespace.as_str()),
            ("Node", "v1") => ("node", "nodes", ""),
            (kind, version) => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                return Err(Failure::bad_request(format!(
                    "cannot bind token to object of type {group}/{version}, Kind={kind}"
                )));
            }
        };
        let resource = self.catalog.find("", "v1", plural).ok_or_else(Failure::unknown_path)?;
        let found = self.store.get(plural, &Key::new(namespace, of("name")));
        let found = found.ok_or_else(|| Failure::not_found(&resource, of("name")))?;
        let mut bound = Bound { objects: vec![(word, found.whole())] };
        if word == "pod" {
            if text(&found.value(), &["spec", "serviceAccountName"]) != account.name {
                return Err(Failure::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different \
                     serviceaccount name.",
                    account.name
                )));
            }
            let node = &*found.head.node;
            let stored = self.store.get("nodes", &Key::new("", node));
            let named = || json!({"metadata": {"name": node}});
            if !node.is_empty() {
                let node = stored.map_or_else(named, |it| it.whole());
                bound.objects.push(("node", node));
            }
        }
        let uid = &*found.head.uid;
        if !of("uid").is_empty() && of("uid") != uid {
            let why = format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The \
                 object might have been deleted and then recreated",
                of("uid")
            );
            return Err(Failure::conflict_of_kind(&resource, of("name"), &why));
        }
        Ok(bound)
    }
}

fn check_validity(seconds: i64) -> Result<(), Failure> {
    let (least, most) = TOKEN_SECONDS;
    let rule = if seconds < least {
        "may not specify a duration less than 10 minutes"
    } else if seconds > most {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let fault = Fault::invalid("spec.expirationSeconds", &json!(seconds), rule);
    Err(Failure::invalid_kind("authentication.k8s.io", "TokenRequest", "", &[fault]))
}
