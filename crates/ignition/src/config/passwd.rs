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
        /// Group id.
        gid: Option<i64> = "gid",
        /// Name.
        name: String = "name" [always],
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// Whether there is to be such a group.
        should_exist: Option<bool> = "shouldExist" [since(V3_2)],
        /// Whether it is a system group.
        system: Option<bool> = "system",
    }
}

object! {
    /// A user.
    pub struct User {
        /// Comment.
        gecos: Option<String> = "gecos",
        /// Supplementary groups.
        groups: Vec<String> = "groups",
        /// Home directory.
        home_dir: Option<String> = "homeDir",
        /// Name.
        name: String = "name" [always],
        /// Whether to go without a home directory.
        no_create_home: Option<bool> = "noCreateHome",
        /// Whether to stay out of the login databases.
        no_log_init: Option<bool> = "noLogInit",
        /// Whether to go without a group of the same name.
        no_user_group: Option<bool> = "noUserGroup",
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// Primary group.
        primary_group: Option<String> = "primaryGroup",
        /// Public keys that may log in.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        /// Login shell.
        shell: Option<String> = "shell",
        /// Whether there is to be such a user.
        should_exist: Option<bool> = "shouldExist" [since(V3_2)],
        /// Whether it is a system user.
        system: Option<bool> = "system",
        /// User id.
        uid: Option<i64> = "uid",
    }
}

keyed!(Group by name, User by name);
