//! Owners of files: as a config names them, and as found on the machine.

use std::fmt;

use mco_ignition::config::File;

/// The expected owner of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// User; `None` accepts any.
    pub user: Option<Account>,
    /// Group; `None` accepts any.
    pub group: Option<Account>,
}

/// A user or group in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// Numeric ID.
    Id(u32),
    /// Name, resolved on the machine.
    Name(String),
}

/// The observed owner of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundOwner {
    /// User.
    pub user: FoundAccount,
    /// Group.
    pub group: FoundAccount,
}

/// A user or group found on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundAccount {
    /// Numeric ID.
    pub id: u32,
    /// Name, if it equals the expected one.
    pub name: Option<String>,
}

impl Owner {
    /// Reads the owner that a config names for a file.
    #[must_use]
    pub fn of(file: &File) -> Self {
        let account = |id: Option<i64>, name: Option<&str>| match id.map(u32::try_from) {
            Some(Ok(id)) => Some(Account::Id(id)),
            Some(Err(_)) | None => {
                name.filter(|name| !name.is_empty()).map(|name| Account::Name(name.to_owned()))
            }
        };
        Self {
            user: account(file.user.id, file.user.name.as_deref()),
            group: account(file.group.id, file.group.name.as_deref()),
        }
    }

    /// Returns true if the observed owner is the expected one.
    #[must_use]
    pub(crate) fn is_met(&self, found: &FoundOwner) -> bool {
        let is = |want: &Option<Account>, found: &FoundAccount| match want {
            None => true,
            Some(Account::Id(id)) => *id == found.id,
            Some(Account::Name(name)) => found.name.as_ref() == Some(name),
        };
        is(&self.user, &found.user) && is(&self.group, &found.group)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |account: &Option<Account>| match account {
            None => "any".to_owned(),
            Some(Account::Id(id)) => id.to_string(),
            Some(Account::Name(name)) => name.clone(),
        };
        write!(f, "{}:{}", text(&self.user), text(&self.group))
    }
}

impl fmt::Display for FoundOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |found: &FoundAccount| found.name.clone().unwrap_or_else(|| found.id.to_string());
        write!(f, "{}:{}", text(&self.user), text(&self.group))
    }
}
