//! The real kube-apiserver, as tests start it.

#![expect(clippy::disallowed_methods, reason = "starts programs like an administrator")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Command, Output, Stdio},
    thread,
};

use mco_testkit::{
    api::{ApiServer as _, KubeApiServer, Programs, Settings, command},
    pki::{Authority, Credentials},
};

fn kubectl(server: &KubeApiServer, kubeconfig: &Path, args: &str) -> Output {
    let mut command = Command::new(server.kubectl());
    command.arg("--kubeconfig").arg(kubeconfig).args(args.split(' ')).stdin(Stdio::null());
    command.output().expect("kubectl starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn users_authenticate_by_certificate_and_token_and_all_processes_end() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(absent) => {
            let _ = writeln!(std::io::stderr(), "skipped: {absent}");
            return;
        }
    };
    let folder = tempfile::tempdir().expect("a temporary directory can be created");
    let authority = Authority::new("test").expect("an authority can be created");
    let settings = Settings::loopback(folder.path());
    let mut server =
        KubeApiServer::start(&programs, &authority, &settings).expect("kube-apiserver starts");
    let admin = server.kubeconfig().to_owned();
    let who = text(&kubectl(&server, &admin, "auth whoami -o jsonpath={.status.userInfo.groups}"));
    assert!(who.contains("system:masters"), "{who}");

    text(&kubectl(&server, &admin, "create serviceaccount reader -n default"));
    let token = text(&kubectl(&server, &admin, "create token reader -n default"));
    let by_token = folder.path().join("by-token");
    let config = authority.kubeconfig(server.url(), Credentials::Token(token.trim()));
    std::fs::write(&by_token, config).expect("the kubeconfig is written");
    let who = kubectl(&server, &by_token, "auth whoami -o jsonpath={.status.userInfo.username}");
    assert_eq!(text(&who), "system:serviceaccount:default:reader");
    let refused = kubectl(&server, &by_token, "get secrets -A");
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.contains("cannot list resource \"secrets\""), "{refused}");

    let ids = server.processes().map(|process| process.id());
    drop(server);
    for id in ids {
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "process {id} still runs");
    }
}

#[test]
fn a_child_process_dies_with_the_thread_of_its_test() {
    if command("true").output().is_err() {
        let _ = writeln!(std::io::stderr(), "skipped: setpriv of util-linux is missing");
        return;
    }
    let started = thread::spawn(|| {
        let mut sleeper = command("sh");
        sleeper.args(["-c", "echo up; exec sleep 1000"]).stdout(Stdio::piped());
        let mut child = sleeper.spawn().expect("the process starts");
        // The process is bound to this thread only once it runs.
        let mut line = String::new();
        let output = child.stdout.take().expect("standard output is piped");
        BufReader::new(output).read_line(&mut line).expect("the process prints a line");
        child
    });
    let mut child = started.join().expect("the thread does not panic");
    let status = child.wait().expect("the process ends");
    assert_eq!(status.signal(), Some(9));
}
