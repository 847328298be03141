//! Fetches the config of the pool, for as long as the server may become ready.

use std::time::Duration;

use mco_cluster::{
    Clock,
    config_server::{ConfigServer, ConfigServerError, JoiningMachine},
    report::chain,
};
use tokio::time::{Instant, sleep};

use crate::print;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Interval of lines while nothing changes.
const REMINDER: Duration = Duration::from_mins(5);

/// Fetches the config; prints what it waits for. Fails if the server refuses the machine.
pub(super) async fn fetch(
    server: &ConfigServer,
    pool: &str,
    machine: &JoiningMachine,
) -> Result<Vec<u8>, ConfigServerError> {
    let since = Clock::System.now().strftime("%H:%M:%S UTC").to_string();
    let mut pause = FIRST_PAUSE;
    let mut shown: Option<(String, Instant)> = None;
    loop {
        let error = match server.fetch(pool, machine).await {
            Err(error) if !error.is_final() => chain(&error),
            fetched => return fetched,
        };
        let is_new =
            shown.as_ref().is_none_or(|(text, at)| *text != error || at.elapsed() >= REMINDER);
        if is_new {
            let address = server.address();
            print::note(&format!(
                "waiting for the config of pool {pool} from {address} since {since}: {error}"
            ));
            shown = Some((error, Instant::now()));
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
