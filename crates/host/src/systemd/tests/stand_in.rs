//! A stand-in for the bus of a machine and the systemd on it.

use std::{os::unix::net::UnixListener, path::Path};

use futures::StreamExt as _;
use zbus::{Connection, Guid, Message, connection::Builder};

/// The answer to a call of a method.
pub(super) enum Answer {
    /// The call succeeded.
    Done,
    /// systemd refuses, with this error.
    Refused(&'static str),
    /// The bus closes the connection without an answer.
    Close,
}

/// Serves the bus of the machine below `root` until the process ends; `answer` gets the name of each
/// method of systemd, and the call.
pub(super) fn serve(
    root: &Path,
    mut answer: impl FnMut(&str, &Message) -> Answer + Send + 'static,
) {
    let folder = root.join("run/dbus");
    std::fs::create_dir_all(&folder).unwrap();
    let listener = UnixListener::bind(folder.join("system_bus_socket")).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for stream in listener.incoming() {
            let builder = Builder::unix_stream(stream.unwrap()).server(Guid::generate()).p2p();
            runtime.block_on(serve_connection(builder, &mut answer));
        }
    });
}

async fn serve_connection(builder: Builder<'_>, answer: &mut impl FnMut(&str, &Message) -> Answer) {
    let Ok(mut calls) = builder.build_message_stream().await else { return };
    let bus = Connection::from(&calls);
    while let Some(Ok(call)) = calls.next().await {
        let header = call.header();
        let Some(member) = header.member() else { continue };
        let sent = match member.as_str() {
            "Hello" => bus.reply(&header, &(":1.1",)).await,
            "Ping" | "AddMatch" | "RemoveMatch" => bus.reply(&header, &()).await,
            method => match answer(method, &call) {
                Answer::Done => bus.reply(&header, &()).await,
                Answer::Refused(name) => bus.reply_error(&header, name, &("refused",)).await,
                Answer::Close => return drop(bus.close().await),
            },
        };
        if sent.is_err() {
            return;
        }
    }
}
