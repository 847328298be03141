use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;

/// A pod in words: `mirror`, `leaving`, `finished`, or `of <Kind>`.
fn pod(words: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("p".to_owned());
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "mirror" => {
                let mark = (MIRROR.to_owned(), "hash".to_owned());
                pod.metadata.annotations = Some([mark].into());
            }
            "leaving" => {
                pod.metadata.deletion_timestamp =
                    serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap();
            }
            "finished" => {
                pod.status.get_or_insert_default().phase = Some("Succeeded".to_owned());
            }
            "of" => {
                pod.metadata.owner_references = Some(vec![OwnerReference {
                    kind: words.next().unwrap().to_owned(),
                    controller: Some(true),
                    ..OwnerReference::default()
                }]);
            }
            other => panic!("{other}"),
        }
    }
    pod
}

// covers: DRN-4
#[test]
fn every_pod_goes_but_those_that_would_come_back_at_once() {
    let cases = [
        ("", Fate::Evict),
        ("of ReplicaSet", Fate::Evict),
        ("finished of Job", Fate::Evict),
        ("of DaemonSet", Fate::DaemonSet),
        ("finished of DaemonSet", Fate::Evict),
        ("leaving of ReplicaSet", Fate::Leaving),
        ("mirror", Fate::Mirror),
        ("mirror leaving", Fate::Mirror),
    ];
    for (words, expected) in cases {
        assert_eq!(PodView::of(&pod(words)).fate, expected, "{words}");
    }
}

// covers: DRN-1, DRN-2, DRN-3
#[test]
fn a_request_counts_until_it_was_answered() {
    let this = |verb, config: &str| Asked::This(DrainRequest { verb, config: config.to_owned() });
    let cases = [
        (None, None, Asked::Nothing),
        (Some("drain-a"), Some("drain-a"), Asked::Nothing),
        (Some("drain-a"), None, this(DrainVerb::Drain, "a")),
        (Some("drain-b"), Some("uncordon-a"), this(DrainVerb::Drain, "b")),
        (Some("uncordon-a"), Some("drain-a"), this(DrainVerb::Uncordon, "a")),
        (Some("drain"), None, this(DrainVerb::Drain, "")),
    ];
    for (desired, applied, expected) in cases {
        assert_eq!(asked(desired, applied), expected, "{desired:?} {applied:?}");
    }
    assert!(matches!(asked(Some("reboot-a"), None), Asked::Unclear { .. }));
}

// covers: DRN-6
#[test]
fn a_drain_that_does_not_get_on_is_tried_less_often() {
    assert_eq!(retry_after(Duration::from_secs(30)), Duration::from_mins(1));
    assert_eq!(retry_after(SLOW), Duration::from_mins(1));
    assert_eq!(retry_after(SLOW + Duration::from_secs(1)), Duration::from_mins(5));
}

// covers: DRN-7
#[test]
fn people_hear_of_a_drain_after_ten_minutes_and_again_after_an_hour() {
    let age = Duration::from_mins;
    assert_eq!(setback(age(5), "x"), Setback { pause: age(1), warning: None });
    let late = setback(age(11), "pod shop/db: no");
    assert_eq!(late.pause, age(5));
    assert!(late.warning.unwrap().ends_with("Error message from drain: pod shop/db: no"));
    assert_eq!(overdue("n", age(60)), None);
    let text = "node n: drain exceeded timeout: 1h0m0s. Will continue to retry.";
    assert_eq!(overdue("n", age(61)).as_deref(), Some(text));
}
