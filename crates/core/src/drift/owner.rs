//! Who owns a file, as a config says it and as it is found.

use std::fmt;

use mco_ignition::config::File;

/// Who is to own a file, as far as its config says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user; anybody if it says nothing.
    pub user: Option<Account>,
    /// The group; any if it says nothing.
    pub group: Option<Account>,
}

/// A user or a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// By number.
    Id(u32),
    /// By name, as the machine knows it.
    Name(String),
}

/// Who owns a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The user.
    pub user: Found,
    /// The group.
    pub group: Found,
}

/// A user or a group of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number.
    pub id: u32,
    /// Its name, if it is the one that was asked for.
    pub name: Option<String>,
}

impl Owner {
    /// What a config says about a file.
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

    /// Whether these are the ones.
    #[must_use]
    pub fn is_met(&self, found: &Owned) -> bool {
        let is = |want: &Option<Account>, found: &Found| match want {
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

impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |found: &Found| found.name.clone().unwrap_or_else(|| found.id.to_string());
        write!(f, "{}:{}", text(&self.user), text(&self.group))
    }
}
