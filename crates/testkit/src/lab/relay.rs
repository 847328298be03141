//! The way from this machine's loopback address to the lab's API server, whose network is its own.

use std::{
    fs::File,
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
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

fn pass(near: &TcpStream, network: &File, target: SocketAddr) -> io::Result<()> {
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
    let far = TcpStream::connect(target)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| copy(near, &far));
        copy(&far, near);
    });
    Ok(())
}

/// Copies until one side has said everything, or is gone.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    drop(io::copy(&mut from, &mut to));
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}
