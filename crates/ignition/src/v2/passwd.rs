//! Users and groups.

use crate::{config::keyed, object::object};

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
        name: String = "name",
        /// Encrypted password.
        password_hash: String = "passwordHash",
        /// True for a system group.
        system: bool = "system",
    }
}

object! {
    /// A user.
    pub struct User {
        /// Options for creating the user; superseded by the other members, which are newer.
        create: Option<UserCreate> = "create",
        /// Comment on the user.
        gecos: String = "gecos" [since(V3_1)],
        /// Supplementary groups.
        groups: Vec<String> = "groups" [since(V3_1)],
        /// Home directory.
        home_dir: String = "homeDir" [since(V3_1)],
        /// Name of the user.
        name: String = "name",
        /// True if no home directory is created.
        no_create_home: bool = "noCreateHome" [since(V3_1)],
        /// True if the user is not added to the login databases.
        no_log_init: bool = "noLogInit" [since(V3_1)],
        /// True if no group with the user's name is created.
        no_user_group: bool = "noUserGroup" [since(V3_1)],
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// Primary group.
        primary_group: String = "primaryGroup" [since(V3_1)],
        /// SSH public keys that may log in.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        /// Login shell.
        shell: String = "shell" [since(V3_1)],
        /// True for a system user.
        system: bool = "system" [since(V3_1)],
        /// User ID.
        uid: Option<i64> = "uid" [since(V3_1)],
    }
}

object! {
    /// Options for creating a user.
    pub struct UserCreate {
        /// Comment on the user.
        gecos: String = "gecos",
        /// Supplementary groups.
        groups: Vec<String> = "groups",
        /// Home directory.
        home_dir: String = "homeDir",
        /// True if no home directory is created.
        no_create_home: bool = "noCreateHome",
        /// True if the user is not added to the login databases.
        no_log_init: bool = "noLogInit",
        /// True if no group with the user's name is created.
        no_user_group: bool = "noUserGroup",
        /// Primary group.
        primary_group: String = "primaryGroup",
        /// Login shell.
        shell: String = "shell",
        /// True for a system user.
        system: bool = "system",
        /// User ID.
        uid: Option<i64> = "uid",
    }
}

keyed!(Group by name, User by name);
