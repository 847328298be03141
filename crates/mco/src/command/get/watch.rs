//! `mco get -w`: prints objects, and each of them again when it changes.

use std::{io::Write as _, process::ExitCode};

use futures::TryStreamExt as _;
use http::{Request, header::ACCEPT};
use kube::{Client, core::WatchEvent};
use mco_cluster::Shutdown;
use serde_json::Value;

use super::{GetArgs, ObjectQuery, Output, path, write};
use crate::{
    error::error_with_hint,
    print::Screen,
    remote::{
        self,
        table::{self, Layout, Table},
    },
};

/// Prints the objects and every change until a signal arrives or the API server ends the watch.
pub(super) async fn run(
    args: &GetArgs,
    client: &Client,
    queries: &[ObjectQuery<'_>],
    screen: &mut Screen<'_>,
) -> anyhow::Result<ExitCode> {
    let [query] = queries else {
        return Err(error_with_hint(
            "--watch shows one kind",
            "name one kind, and at most one object",
        ));
    };
    let is_table = matches!(args.output, Output::Table | Output::Wide);
    let whole = ObjectQuery { kind: query.kind, name: None };
    // Version 0 starts with the state that the API server has at hand. Without it, kube-apiserver ends
    // the watch if its cache lags behind etcd.
    let query_text = "watch=true&resourceVersion=0&includeObject=Object";
    let mut url = path(args, client, &whole, query_text)?;
    if let Some(name) = &query.name {
        url.push_str("&fieldSelector=metadata.name%3D");
        url.push_str(name);
    }
    let accept = if is_table { table::ACCEPT } else { "application/json" };
    let request = Request::get(url).header(ACCEPT, accept).body(Vec::new())?;
    let shutdown = Shutdown::on_signals()?;
    let events = client.request_events::<Value>(request).await.map_err(remote::call_error)?;
    let mut events = std::pin::pin!(events);
    let mut titles = !args.no_headers;
    let mut widths = Vec::new();
    loop {
        let event = tokio::select! {
            () = shutdown.requested() => return Ok(ExitCode::SUCCESS),
            event = events.try_next() => event.map_err(remote::call_error)?,
        };
        let mut object = match event {
            None => return Ok(ExitCode::SUCCESS),
            Some(WatchEvent::Bookmark(_)) => continue,
            Some(WatchEvent::Error(status)) => {
                anyhow::bail!("the API server ended the watch: {}", status.message)
            }
            Some(
                WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object),
            ) => object,
        };
        if is_table {
            let lines = rows(args, query, object, std::mem::take(&mut titles))?;
            table::write_below(screen, &lines, &mut widths)?;
        } else {
            query.kind.mark(&mut object);
            write(args, &object, screen)?;
            if matches!(args.output, Output::JsonPath(_)) {
                writeln!(screen)?;
            }
        }
        screen.flush()?;
    }
}

/// Returns the lines of a change, below the titles if they are wanted.
fn rows(
    args: &GetArgs,
    query: &ObjectQuery<'_>,
    object: Value,
    titles: bool,
) -> anyhow::Result<Vec<Vec<String>>> {
    let table: Table = serde_json::from_value(object)?;
    let layout = Layout {
        wide: args.output == Output::Wide,
        namespace: args.all_namespaces && query.kind.namespaced,
        kind: false,
    };
    let mut lines = table.lines(layout, &query.kind.qualified_singular());
    if !titles {
        lines.remove(0);
    }
    Ok(lines)
}
