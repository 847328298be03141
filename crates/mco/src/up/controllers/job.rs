//! Jobs: pods that run to completion, counted.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::Time,
};
use serde_json::{Value, json};

use super::pods::{self, Phase, PodView, SizePlan};

/// Annotation and label with the index of a pod of an indexed Job.
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The changes of a Job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobPlan {
    /// Pods to create, each with its index if the Job is indexed.
    pub(crate) create: Vec<Option<i32>>,
    /// Names of the pods to delete.
    pub(crate) delete: Vec<String>,
    /// True if the Job has been finished for its time to live.
    pub(crate) is_expired: bool,
    pub(crate) status: Option<Value>,
}

/// A pod of a Job, with its index.
pub(crate) type JobPod<'p> = (&'p PodView, Option<i32>);

/// Plans the next changes of a Job.
pub(crate) fn plan(job: &Job, pods: &[JobPod<'_>], now: Timestamp) -> JobPlan {
    let spec = job.spec.clone().unwrap_or_default();
    let mut plan =
        JobPlan { create: Vec::new(), delete: Vec::new(), is_expired: false, status: None };
    if let Some(end) = finished(job) {
        let ttl = spec.ttl_seconds_after_finished.map(|it| SignedDuration::from_secs(it.into()));
        plan.is_expired = ttl.is_some_and(|ttl| now.duration_since(end) >= ttl);
        return plan;
    }
    let views: Vec<&PodView> = pods.iter().map(|(pod, _)| *pod).collect();
    let count = |phase| views.iter().filter(|pod| pod.phase == phase).count();
    let counts = Counts {
        succeeded: count(Phase::Succeeded)
            .max(number(job.status.as_ref().and_then(|it| it.succeeded))),
        failed: count(Phase::Failed),
        active: views.iter().filter(|pod| pod.is_active()).count(),
    };
    let outcome = outcome(&spec, counts);
    let is_stopped = spec.suspend.unwrap_or(false) || outcome.is_some();
    let left =
        spec.completions.map_or(usize::MAX, |it| number(Some(it))).saturating_sub(counts.succeeded);
    // Without a number of completions, no pod is added once one has succeeded.
    let left =
        if spec.completions.is_none() && counts.succeeded > 0 { counts.active } else { left };
    let wanted = number(Some(spec.parallelism.unwrap_or(1))).min(left);
    let SizePlan { create, delete } = pods::resize(if is_stopped { 0 } else { wanted }, &views);
    plan.create = if spec.completion_mode.as_deref() == Some("Indexed") {
        let taken = |(pod, _): &&JobPod<'_>| pod.is_active() || pod.phase == Phase::Succeeded;
        let taken: BTreeSet<i32> = pods.iter().filter(taken).filter_map(|(_, it)| *it).collect();
        let free = (0..spec.completions.unwrap_or(0)).filter(|index| !taken.contains(index));
        free.take(create).map(Some).collect()
    } else {
        vec![None; create]
    };
    plan.delete = delete;
    plan.status = Some(status(job, counts, outcome, now));
    plan
}

/// Numbers of pods of a Job.
#[derive(Clone, Copy, Debug)]
struct Counts {
    succeeded: usize,
    failed: usize,
    active: usize,
}

/// The end of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Complete,
    Failed,
}

fn number(value: Option<i32>) -> usize {
    value.and_then(|it| usize::try_from(it).ok()).unwrap_or(0)
}

fn outcome(spec: &JobSpec, counts: Counts) -> Option<Outcome> {
    let is_complete = match spec.completions {
        Some(wanted) => counts.succeeded >= number(Some(wanted)),
        None => counts.succeeded > 0 && counts.active == 0,
    };
    let is_failed = counts.failed > number(Some(spec.backoff_limit.unwrap_or(6)));
    match (is_complete, is_failed) {
        (true, _) => Some(Outcome::Complete),
        (false, true) => Some(Outcome::Failed),
        (false, false) => None,
    }
}

/// Returns the time at which a Job finished.
fn finished(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is_end = |kind: &str| matches!(kind, "Complete" | "Failed");
    let end = conditions.iter().find(|it| is_end(&it.type_) && it.status == "True")?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

fn status(job: &Job, counts: Counts, outcome: Option<Outcome>, now: Timestamp) -> Value {
    let spec = job.spec.clone().unwrap_or_default();
    let before = job.status.clone().unwrap_or_default();
    // Times of the API have whole seconds.
    let now = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": now, "lastTransitionTime": now})
    };
    let is_suspended = spec.suspend.unwrap_or(false);
    let kept = before.conditions.as_ref().map(|it| json!(it));
    let (conditions, end) = match outcome {
        Some(Outcome::Complete) => {
            let (reason, message) =
                ("CompletionsReached", "Reached expected number of succeeded pods");
            let kinds = ["SuccessCriteriaMet", "Complete"];
            (json!(kinds.map(|kind| condition(kind, reason, message))), json!(now))
        }
        Some(Outcome::Failed) => {
            let reason = "BackoffLimitExceeded";
            let message = "Job has reached the specified backoff limit";
            let kinds = ["FailureTarget", "Failed"];
            (json!(kinds.map(|kind| condition(kind, reason, message))), Value::Null)
        }
        None if is_suspended => {
            let suspended = condition("Suspended", "JobSuspended", "Job suspended");
            let is_known = |list: &Value| {
                list.as_array().is_some_and(|list| {
                    list.iter().any(|it| it.get("type") == Some(&json!("Suspended")))
                })
            };
            (kept.filter(is_known).unwrap_or_else(|| json!([suspended])), Value::Null)
        }
        None => (Value::Null, Value::Null),
    };
    let start = match before.start_time {
        _ if is_suspended => Value::Null,
        Some(time) => json!(time),
        None => json!(now),
    };
    let positive = |number: usize| if number > 0 { json!(number) } else { Value::Null };
    let active = if outcome.is_some() || is_suspended { 0 } else { counts.active };
    json!({
        "startTime": start,
        "completionTime": end,
        "active": positive(active),
        "ready": 0,
        "succeeded": positive(counts.succeeded),
        "failed": positive(counts.failed),
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": conditions,
    })
}

/// Returns a new pod of a Job.
pub(crate) fn pod(job: &Job, index: Option<i32>) -> Pod {
    let template = job.spec.clone().unwrap_or_default().template;
    let owner = pods::reference("batch/v1", "Job", &job.metadata);
    let mut pod = pods::from_template(&template, owner);
    if let Some(index) = index {
        let of = |map: &mut Option<std::collections::BTreeMap<_, _>>| {
            map.get_or_insert_default().insert(INDEX.to_owned(), index.to_string());
        };
        of(&mut pod.metadata.labels);
        of(&mut pod.metadata.annotations);
        pod.metadata.generate_name = pod.metadata.generate_name.map(|it| format!("{it}{index}-"));
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: &Value) -> Job {
        let metadata = json!({"name": "j", "namespace": "n", "uid": "u"});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn spec(completions: i32, parallelism: i32) -> Value {
        json!({"completions": completions, "parallelism": parallelism,
            "template": {"spec": {"containers": [], "restartPolicy": "Never"}}})
    }

    fn planned(job: &Job, pods: &str) -> JobPlan {
        let pods = pods::tests::pods(pods);
        let pods: Vec<JobPod<'_>> = pods.iter().map(|pod| (pod, None)).collect();
        plan(job, &pods, at(5))
    }

    #[test]
    fn a_job_runs_its_pods_and_completes() {
        let job = job(&spec(3, 2));
        assert_eq!(planned(&job, "").create.len(), 2);
        assert_eq!(planned(&job, "a b").create.len(), 0);
        assert_eq!(planned(&job, "a* b").create.len(), 1);
        assert_eq!(planned(&job, "a* b* c").create.len(), 0);
        let done = planned(&job, "a* b* c*");
        let status = done.status.unwrap();
        let kinds: Vec<&Value> =
            status["conditions"].as_array().unwrap().iter().map(|it| &it["type"]).collect();
        assert_eq!(kinds, ["SuccessCriteriaMet", "Complete"]);
        assert_eq!((&status["succeeded"], &status["active"]), (&json!(3), &Value::Null));
        assert_eq!(status["completionTime"], "1970-01-01T00:00:05Z");
    }

    #[test]
    fn a_finished_job_is_left_alone_until_it_expires() {
        let mut job = job(&spec(1, 1));
        job.spec.as_mut().unwrap().ttl_seconds_after_finished = Some(10);
        job.status = serde_json::from_value(planned(&job, "a*").status.unwrap()).unwrap();
        let later = |second| plan(&job, &[], at(second));
        assert_eq!((later(14).is_expired, later(15).is_expired), (false, true));
        assert!(later(14).create.is_empty() && later(14).status.is_none());
    }

    #[test]
    fn a_suspended_job_has_no_pods() {
        let mut job = job(&spec(1, 1));
        job.spec.as_mut().unwrap().suspend = Some(true);
        let plan = planned(&job, "a");
        assert_eq!((plan.create.len(), plan.delete.len()), (0, 1));
        assert_eq!(plan.status.unwrap()["conditions"][0]["type"], "Suspended");
    }

    #[test]
    fn each_index_runs_once() {
        let mut job = job(&spec(3, 3));
        job.spec.as_mut().unwrap().completion_mode = Some("Indexed".to_owned());
        let pods = pods::tests::pods("a* b");
        let pods: Vec<JobPod<'_>> = pods.iter().zip([Some(0), Some(2)]).collect();
        assert_eq!(plan(&job, &pods, at(0)).create, [Some(1)]);
        let pod = pod(&job, Some(1));
        assert_eq!(pod.metadata.annotations.unwrap()[INDEX], "1");
    }
}
