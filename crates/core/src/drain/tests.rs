use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::*;

/// Builds a pod from words: `mirror`, `leaving`, `finished`, or `of <Kind>`.
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
fn all_pods_are_evicted_except_mirror_and_daemonset_pods() {
    let cases = [
        ("", PodTreatment::Evict),
        ("of ReplicaSet", PodTreatment::Evict),
        ("finished of Job", PodTreatment::Evict),
        ("of DaemonSet", PodTreatment::DaemonSet),
        ("finished of DaemonSet", PodTreatment::Evict),
        ("leaving of ReplicaSet", PodTreatment::Leaving),
        ("leaving of DaemonSet", PodTreatment::DaemonSet),
        ("leaving finished of DaemonSet", PodTreatment::Leaving),
        ("mirror", PodTreatment::Mirror),
        ("mirror leaving", PodTreatment::Mirror),
    ];
    for (words, expected) in cases {
        assert_eq!(PodView::of(&pod(words)).treatment, expected, "{words}");
    }
}

// covers: DRN-1, DRN-2, DRN-3
#[test]
fn a_drain_request_is_pending_until_it_is_applied() {
    let this = |verb, config: &str| {
        PendingRequest::Request(DrainRequest { verb, config: config.to_owned() })
    };
    let cases = [
        ("", "", PendingRequest::None),
        ("drain-a", "drain-a", PendingRequest::None),
        ("drain-a", "", this(DrainVerb::Drain, "a")),
        ("drain-b", "uncordon-a", this(DrainVerb::Drain, "b")),
        ("uncordon-a", "drain-a", this(DrainVerb::Uncordon, "a")),
        ("drain", "", this(DrainVerb::Drain, "")),
    ];
    for (desired, applied, expected) in cases {
        let handshake = Handshake { desired, applied, is_recorded: false };
        assert_eq!(pending_request(&handshake), expected, "{handshake:?}");
    }
    let handshake = Handshake { desired: "reboot-a", ..Handshake::default() };
    assert!(matches!(pending_request(&handshake), PendingRequest::Invalid { .. }));
}

// covers: DRN-2
#[test]
fn an_uncordon_is_pending_again_while_the_record_of_a_drain_is_left() {
    let read = |desired, applied, is_recorded| {
        let handshake = Handshake { desired, applied, is_recorded };
        (pending_request(&handshake), handshake.owns_cordon())
    };
    let uncordon = DrainRequest { verb: DrainVerb::Uncordon, config: "a".to_owned() };
    let uncordon = PendingRequest::Request(uncordon);
    assert_eq!(read("uncordon-a", "uncordon-a", true), (uncordon.clone(), true));
    assert_eq!(read("uncordon-a", "uncordon-a", false), (PendingRequest::None, false));
    assert_eq!(read("uncordon-a", "drain-b", false), (uncordon.clone(), true));
    assert_eq!(read("uncordon-a", "", true), (uncordon.clone(), true));
    assert_eq!(read("uncordon-a", "uncordon-b", false), (uncordon, false), "the user's cordon");
    assert_eq!(read("drain-a", "drain-a", true), (PendingRequest::None, true));
}

// covers: DRN-6
#[test]
fn a_slow_drain_is_retried_less_often() {
    let limits = Limits::REFERENCE;
    let pause = |age| retry_after(&limits, age);
    assert_eq!(pause(Duration::from_secs(30)), Duration::from_mins(1));
    assert_eq!(pause(limits.slow), Duration::from_mins(1));
    assert_eq!(pause(limits.slow + Duration::from_secs(1)), Duration::from_mins(5));
}

// covers: DRN-6, DRN-7
#[test]
fn a_drain_warns_after_ten_minutes_and_is_overdue_after_an_hour() {
    let (age, limits) = (Duration::from_mins, Limits::REFERENCE);
    assert_eq!(after_failure(&limits, age(5), "x"), RetryDecision { pause: age(1), warning: None });
    let late = after_failure(&limits, age(11), "pod shop/db: no");
    assert_eq!(late.pause, age(5));
    let text = "Drain failed. Drain has been failing for more than 10 minutes. Waiting 5 minutes \
                then retrying. Error message from drain: pod shop/db: no";
    assert_eq!(late.warning.as_deref(), Some(text));
    assert_eq!(overdue("n", &limits, age(60)), None);
    let text = "node n: drain exceeded timeout: 1h0m0s. Will continue to retry.";
    assert_eq!(overdue("n", &limits, age(61)).as_deref(), Some(text));
}

// covers: DRN-7
#[test]
fn a_pool_can_set_its_own_limits() {
    let read = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(key, value)| {
            (format!("machineconfiguration.openshift.io/{key}"), (*value).to_owned())
        });
        Limits::of(&pairs.collect(), Limits::REFERENCE)
    };
    let (limits, faults) = read(&[]);
    assert_eq!((limits, faults.len()), (Limits::REFERENCE, 0));
    let (limits, faults) = read(&[("drain-timeout", "30m"), ("drain-attempt-timeout", "5m")]);
    let wanted = Limits {
        attempt: Duration::from_mins(5),
        slow: Duration::from_mins(5),
        overdue: Duration::from_mins(30),
    };
    assert_eq!((limits, faults.len()), (wanted, 0));
    let text = after_failure(&limits, Duration::from_mins(6), "x").warning.unwrap();
    assert!(text.contains("for more than 6 minutes. Waiting 5 minutes then"), "{text}");
    let text = overdue("n", &limits, Duration::from_mins(31)).unwrap();
    assert!(text.contains("timeout: 30m0s"), "{text}");
}

// covers: DRN-6, DRN-7
#[test]
fn a_short_timeout_is_reported_in_time_and_messages_name_true_times() {
    let minute = "machineconfiguration.openshift.io/drain-timeout".to_owned();
    let (limits, _) = Limits::of(&[(minute, "1m".to_owned())].into(), Limits::REFERENCE);
    // Attempts and pauses, one after the other: the first moment after the timeout is used.
    let mut age = Duration::ZERO;
    while overdue("n", &limits, age).is_none() {
        age += attempt_time(&limits, age);
        if overdue("n", &limits, age).is_none() {
            age += retry_after(&limits, age);
        }
    }
    assert_eq!(age, Duration::from_secs(61));
    let late = after_failure(&limits, Duration::from_millis(90_400), "x");
    assert_eq!(late.pause, Duration::from_mins(1));
    let text = late.warning.unwrap();
    assert!(text.contains("for more than 1m30s. Waiting 1 minute then retrying"), "{text}");
    for (seconds, text) in [(60, "1 minute"), (3600, "1 hour"), (7200, "2 hours"), (5, "5s")] {
        assert_eq!(in_words(Duration::from_secs(seconds)), text);
    }
    assert_eq!(in_words(Duration::from_millis(300)), "300ms");
}

#[test]
fn an_invalid_limit_is_reported_and_the_default_applies() {
    let rows = [
        ("drain-timeout", "soon", "not a duration"),
        ("drain-timeout", "", "not a duration"),
        ("drain-timeout", "0s", "must be between 1m0s and 168h0m0s"),
        ("drain-timeout", "169h", "must be between"),
        ("drain-attempt-timeout", "1s", "must be between 10s and 1h0m0s"),
        ("drain-attempt-timeout", "2h", "must be between"),
    ];
    for (key, value, why) in rows {
        let key = format!("machineconfiguration.openshift.io/{key}");
        let annotations = [(key.clone(), value.to_owned())].into();
        let (limits, faults) = Limits::of(&annotations, Limits::REFERENCE);
        assert_eq!(limits, Limits::REFERENCE, "{key} {value}");
        let [fault] = faults.as_slice() else { panic!("{key} {value}: {faults:?}") };
        let text = fault.text("worker");
        for part in ["pool worker", key.as_str(), value, why, "remove the annotation"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
