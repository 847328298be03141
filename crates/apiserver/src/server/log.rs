//! The subresources of pods that kube-apiserver passes on to kubelets: `log`, `exec`, `attach` and
//! `portforward`.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, Method, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Body, Call, Server};
use crate::{
    failure::{Failure, Fault},
    kubelets::{Line, Log},
    object,
    store::Object,
};

/// The options of a request for a log.
#[derive(Debug, Default, PartialEq, Eq)]
struct LogOptions {
    container: String,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<i64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<i64>,
    limit_bytes: Option<i64>,
}

/// A log that a client reads.
struct Reader {
    server: Arc<Server>,
    log: Arc<Log>,
    signal: watch::Receiver<u64>,
    /// Number of lines that were sent or skipped.
    seen: u64,
    options: LogOptions,
    /// Bytes that may still be sent.
    room: usize,
    /// The lines that existed at the request.
    first: Option<Bytes>,
}

impl Server {
    /// Answers a request for the log of a container.
    pub(super) fn log(
        self: &Arc<Self>,
        call: &Call,
        method: &Method,
        query: &str,
    ) -> Result<Response<Body>, Failure> {
        if *method != Method::GET {
            return Err(Failure::method());
        }
        let stored = self.pod(call)?;
        let pod = &*stored.value();
        let name = object::name(pod);
        let options = LogOptions::parse(query)?;
        options.check(name)?;
        let container = container(pod, &options.container)?;
        if options.previous {
            return Err(Failure::bad_request(format!(
                "previous terminated container \"{container}\" in pod \"{name}\" not found"
            )));
        }
        let log = self.kubelets.as_ref().and_then(|kubelets| kubelets.log(pod, &container));
        let log = log.unwrap_or_default();
        let mut reader = Reader {
            server: Arc::clone(self),
            // Subscribes before the first read, so that no line is missed between the two.
            signal: log.subscribe(),
            log,
            seen: 0,
            room: options
                .limit_bytes
                .and_then(|most| usize::try_from(most).ok())
                .unwrap_or(usize::MAX),
            options,
            first: None,
        };
        reader.first = Some(reader.existing(self.clock.now()));
        let frames = stream::unfold(reader, |mut reader| async move {
            let bytes = reader.next().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), reader))
        });
        let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
        let plain = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        Ok(response)
    }

    /// Refuses to run a command in a container or to forward a port: the pods have no processes.
    pub(super) fn refuse_command(&self, call: &Call) -> Result<Response<Body>, Failure> {
        let pod = self.pod(call)?;
        let head = &pod.head;
        let why = match &self.kubelets {
            Some(kubelets) => kubelets.refusal(&pod.value()),
            None if head.node.is_empty() => {
                format!("pod {} does not have a host assigned", head.name)
            }
            None => "this cluster runs no kubelets".to_owned(),
        };
        Err(Failure::bad_request(why))
    }

    fn pod(&self, call: &Call) -> Result<Arc<Object>, Failure> {
        let key = call.key();
        let found = self.store.get(&call.resource.collection, &key);
        found.ok_or_else(|| Failure::not_found(&call.resource, &key.name))
    }
}

impl Reader {
    /// Returns the lines that exist and that the client asks for.
    fn existing(&mut self, now: Timestamp) -> Bytes {
        let (lines, seen) = self.log.after(0);
        self.seen = seen;
        let since = self.options.since(now);
        let lines: Vec<Line> =
            lines.into_iter().filter(|line| since.is_none_or(|since| line.time >= since)).collect();
        let most = self.options.tail_lines.and_then(|most| usize::try_from(most).ok());
        let skipped = most.map_or(0, |most| lines.len().saturating_sub(most));
        self.text(lines.get(skipped..).unwrap_or_default())
    }

    /// Returns the next bytes. `None` ends the stream.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
            return Some(first);
        }
        while self.options.follow && self.room > 0 {
            self.signal.mark_unchanged();
            let (lines, seen) = self.log.after(self.seen);
            self.seen = seen;
            if !lines.is_empty() {
                return Some(self.text(&lines));
            }
            tokio::select! {
                biased;
                () = self.server.stop.cancelled() => return None,
                () = self.server.outage.begun() => return None,
                changed = self.signal.changed() => changed.ok()?,
            }
        }
        None
    }

    fn text(&mut self, lines: &[Line]) -> Bytes {
        let mut text = String::new();
        for line in lines {
            if self.options.timestamps {
                text.push_str(&line.time.strftime("%Y-%m-%dT%H:%M:%S%.9fZ ").to_string());
            }
            text.push_str(&line.text);
            text.push('\n');
        }
        let mut bytes = text.into_bytes();
        bytes.truncate(self.room);
        self.room = self.room.saturating_sub(bytes.len());
        bytes.into()
    }
}

impl LogOptions {
    fn parse(query: &str) -> Result<Self, Failure> {
        let mut out = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8_lossy();
            let flag = || matches!(&*value, "" | "1" | "t" | "true" | "True" | "TRUE");
            match key {
                "container" => out.container = value.into_owned(),
                "follow" => out.follow = flag(),
                "previous" => out.previous = flag(),
                "timestamps" => out.timestamps = flag(),
                "sinceSeconds" => out.since_seconds = Some(number(&value)?),
                "tailLines" => out.tail_lines = Some(number(&value)?),
                "limitBytes" => out.limit_bytes = Some(number(&value)?),
                "sinceTime" => {
                    let time = value.parse().map_err(|_| {
                        Failure::bad_request(format!("sinceTime: \"{value}\" is not a time"))
                    })?;
                    out.since_time = Some(time);
                }
                _ => {}
            }
        }
        Ok(out)
    }

    /// Validates the options as kube-apiserver does.
    fn check(&self, pod: &str) -> Result<(), Failure> {
        let mut faults = Vec::new();
        let mut least = |field: &str, value: Option<i64>, least: i64| {
            if let Some(value) = value.filter(|value| *value < least) {
                let rule = match least {
                    0 => "must be greater than or equal to 0",
                    _ => "must be greater than 0",
                };
                faults.push(Fault::invalid(field, &json!(value), rule));
            }
        };
        least("tailLines", self.tail_lines, 0);
        least("limitBytes", self.limit_bytes, 1);
        if self.since_seconds.is_some() && self.since_time.is_some() {
            let rule = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            faults.push(Fault::forbidden("", rule));
        } else {
            least("sinceSeconds", self.since_seconds, 1);
        }
        if faults.is_empty() {
            return Ok(());
        }
        Err(Failure::invalid_kind("", "PodLogOptions", pod, &faults))
    }

    fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let ago = self.since_seconds.map(SignedDuration::from_secs);
        let ago = ago.and_then(|ago| now.checked_sub(ago).ok());
        self.since_time.or(ago)
    }
}

/// Returns the container whose log is asked for.
fn container(pod: &Value, asked: &str) -> Result<String, Failure> {
    let name = object::name(pod);
    let names = |field: &str| -> Vec<String> {
        let list = object::at(pod, &["spec", field]).and_then(Value::as_array);
        let names = list.into_iter().flatten().filter_map(|one| one["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    if !asked.is_empty() {
        let found = main.iter().chain(&init).any(|name| name == asked);
        let fault = format!("container {asked} is not valid for pod {name}");
        return if found { Ok(asked.to_owned()) } else { Err(Failure::bad_request(fault)) };
    }
    let choices = || {
        let first = match init.as_slice() {
            [] => String::new(),
            init => format!(" or one of the init containers: [{}]", init.join(" ")),
        };
        format!(", choose one of: [{}]{first}", main.join(" "))
    };
    match main.as_slice() {
        [only] => Ok(only.clone()),
        several => {
            let choices = if several.is_empty() { String::new() } else { choices() };
            let fault = format!("a container name must be specified for pod {name}{choices}");
            Err(Failure::bad_request(fault))
        }
    }
}

fn number(value: &str) -> Result<i64, Failure> {
    value.parse().map_err(|_| {
        Failure::bad_request(format!("strconv.ParseInt: parsing \"{value}\": invalid syntax"))
    })
}
