//! Records the use of a token in its Secret.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use mco_api::join_token::JOINS_MEMBER;
use mco_cluster::{
    apply::{self, Precondition},
    error::Rejection,
    report::chain,
};
use mco_core::join::{
    Refusal, StoredToken,
    authorize::{Admission as Admitted, Known},
    token::{joins_member, secret_name},
};
use serde_json::json;

use super::{Admission, Denied, read};

/// Maximum number of attempts. Each conflict means that another server made progress, and there are
/// few servers.
const MAX_ATTEMPTS: usize = 12;

impl Admission {
    /// Decides on the newest version of the token and records the decision, again after each
    /// conflict. Returns if the machine is known, and if the use was written.
    pub(super) async fn record(
        &self,
        id: &str,
        decide: impl Fn(Option<&StoredToken>) -> Result<Admitted, Refusal>,
    ) -> Result<(Known, bool), Denied> {
        let name = secret_name(id);
        let mut found = self.find(id);
        for _ in 0..MAX_ATTEMPTS {
            let admitted = decide(found.as_ref().map(|(stored, _)| stored))?;
            let (Some(joins), Some((_, version))) = (admitted.record, &found) else {
                return Ok((admitted.machine, false));
            };
            let members = json!({"data": {
                (JOINS_MEMBER): BASE64_STANDARD.encode(joins_member(&joins)),
            }});
            let guard = Precondition::Unchanged(version);
            match apply::merge(&self.secrets, &name, members, guard).await {
                Ok(patched) => {
                    self.tokens.learn(patched);
                    return Ok((admitted.machine, true));
                }
                Err(error) if error.is_not_found() => return Err(Refusal::Unknown.into()),
                Err(error) if error.rejection() == Some(Rejection::Conflict) => {
                    let newest = self.secrets.get_opt(&name).await;
                    let newest = newest.map_err(|error| Denied::Unavailable(chain(&error)))?;
                    found = newest.as_ref().and_then(read);
                }
                Err(error) => return Err(Denied::Unavailable(chain(&error))),
            }
        }
        let cause = format!("Secret {name} was changed by others {MAX_ATTEMPTS} times in a row");
        Err(Denied::Unavailable(cause))
    }
}
