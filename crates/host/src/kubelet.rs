//! Asks a machine's kubelet whether it is well.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::system::Answer;

/// The unit that a kubelet runs as.
pub(crate) const UNIT: &str = "kubelet.service";

/// Where it answers, by its own default.
pub(crate) const HEALTH: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10248);

/// A kubelet on the same machine answers at once or not at all.
const LIMIT: Duration = Duration::from_secs(5);
/// As much of the answer as matters.
const LONGEST: u64 = 4096;

/// Asks once. Anything but 200 and `ok` is no.
pub(crate) fn ask(address: SocketAddr) -> Answer {
    match get(address) {
        Ok(text) if text.contains(" 200 ") && text.trim_end().ends_with("ok") => Answer::Yes,
        Ok(text) => {
            let first = text.lines().next().unwrap_or_default();
            Answer::No(format!("the kubelet says that it is not well: {first}"))
        }
        Err(error) => Answer::No(format!("the kubelet does not answer: {error}")),
    }
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn only_ok_is_well() {
        let cases = [
            ("HTTP/1.0 200 OK\r\n\r\nok", true),
            ("HTTP/1.0 500 Internal Server Error\r\n\r\nok", false),
            ("HTTP/1.0 200 OK\r\n\r\nnot yet", false),
        ];
        for (answer, want) in cases {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 64];
                let _ = stream.read(&mut request).unwrap();
                stream.write_all(answer.as_bytes()).unwrap();
            });
            assert_eq!(ask(address) == Answer::Yes, want, "{answer}");
            server.join().unwrap();
            assert!(matches!(ask(address), Answer::No(_)), "nobody answers any longer");
        }
    }
}
