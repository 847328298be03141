//! Ways between this machine's loopback address and the lab, whose network is its own: out of it to the
//! lab's API server, and from the lab's machines to a server of this one.

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

/// Listens on a free loopback port and passes every connection on to `target` in the network
/// namespace `network`, until this process ends or the namespace is gone.
pub(super) fn start(network: &Path, target: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen for the lab")?;
    let address = listener.local_addr().context("cannot listen for the lab")?;
    let network: PathBuf = network.to_owned();
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let Ok(network) = File::open(&network) else { return };
            // A thread of its own, because the whole thread changes its network.
            thread::spawn(move || drop(pass(&near, &network, target)));
        }
    });
    Ok(address)
}

/// Listens on a free port of `address` in the network namespace `network` and passes every connection
/// on to `target`, which is this machine's own, until this process ends or the namespace is gone.
pub(super) fn admit(
    network: &Path,
    address: IpAddr,
    target: SocketAddr,
) -> anyhow::Result<SocketAddr> {
    let network = File::open(network).context("cannot open the lab's network")?;
    // A socket stays in the network where it was made, whoever uses it; so only its maker moves there.
    let bind = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
        TcpListener::bind((address, 0))
    };
    let bound = thread::spawn(bind).join().expect("binding does not panic");
    let listener = bound.context("cannot listen in the lab")?;
    let address = listener.local_addr().context("cannot listen in the lab")?;
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

/// Copies until one side has said everything, or is gone.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}
