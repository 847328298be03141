//! Users and groups.

use super::keyed;
use crate::object::object;

object! {
    /// Users and groups.
    pub struct Passwd {
        /// Groups.
        groups: Vec<Group> = "groups",
        /// Users.
        users: Vec<User> = "users",
    }
}

object! {
    /// A group.
    pub struct Group {
        /// Group ID.
        gid: Option<i64> = "gid",
        /// Name of the group.
        name: String = "name" [always],
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// False if the group must not exist.
        should_exist: Option<bool> = "shouldExist" [since(V3_2)],
        /// True for a system group.
        system: Option<bool> = "system",
    }
}

object! {
    /// A user.
    pub struct User {
        /// Comment on the user.
        gecos: Option<String> = "gecos",
        /// Supplementary groups.
        groups: Vec<String> = "groups",
        /// Home directory.
        home_dir: Option<String> = "homeDir",
        /// Name of the user.
        name: String = "name" [always],
        /// True if no home directory is created.
        no_create_home: Option<bool> = "noCreateHome",
        /// True if the user is not added to the login databases.
        no_log_init: Option<bool> = "noLogInit",
        /// True if no group with the user's name is created.
        no_user_group: Option<bool> = "noUserGroup",
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// Primary group.
        primary_group: Option<String> = "primaryGroup",
        /// SSH public keys that may log in.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        /// Login shell.
        shell: Option<String> = "shell",
        /// False if the user must not exist.
        should_exist: Option<bool> = "shouldExist" [since(V3_2)],
        /// True for a system user.
        system: Option<bool> = "system",
        /// User ID.
        uid: Option<i64> = "uid",
    }
}

keyed!(Group by name, User by name);
