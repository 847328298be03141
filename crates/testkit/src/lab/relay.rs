//! TCP relays between the host's loopback address and the lab's network: from the host to the lab's
//! API server, and from the lab's machines to a server on the host.

use std::{
    fs::File,
    io,
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    thread,
};

use anyhow::Context as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Listens on a free loopback port and relays connections to `target` in the network namespace
/// `network`, until this process ends or the namespace is gone.
pub(super) fn start(network: &Path, target: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("failed to listen for the lab")?;
    let address = listener.local_addr().context("failed to listen for the lab")?;
    let network: PathBuf = network.to_owned();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(network) = File::open(&network) else { return };
            // A new thread, because setns changes the network of the whole thread.
            thread::spawn(move || drop(pass(&near, &network, target)));
        }
    });
    Ok(address)
}

/// Listens on a free port of `address` in the network namespace `network` and relays connections to
/// `target` on the host, until this process ends or the namespace is gone.
pub(super) fn listen_in_lab(
    network: &Path,
    address: IpAddr,
    target: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let network = File::open(network).context("failed to open the lab's network")?;
    // A socket stays in the namespace in which it was created, so only the creating thread enters
    // it.
    let bind = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind((address, 0))
    };
    let bound = thread::spawn(bind).join().expect("binding a socket does not panic");
    let listener = bound.context("failed to listen in the lab")?;
    let address = listener.local_addr().context("failed to listen in the lab")?;
    thread::spawn(move || {
        for far in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let near = TcpStream::connect(target);
                drop(near.and_then(|near| exchange(&near, &far)));
            });
        }
    });
    Ok(address)
}

fn pass(near: &TcpStream, network: &File, target: SocketAddr) -> io::Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    exchange(near, &TcpStream::connect(target)?)
}

fn exchange(near: &TcpStream, far: &TcpStream) -> io::Result<()> {
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(near, far));
        copy(far, near);
    });
    Ok(())
}

/// Copies until one side closes the connection.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}
