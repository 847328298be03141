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
        /// Group id.
        gid: Option<i64> = "gid",
        /// Name.
        name: String = "name",
        /// Encrypted password.
        password_hash: String = "passwordHash",
        /// Whether it is a system group.
        system: bool = "system",
    }
}

object! {
    /// A user.
    pub struct User {
        /// How to create it; the other members came later and replace this.
        create: Option<UserCreate> = "create",
        /// Comment.
        gecos: String = "gecos" [since(V3_1)],
        /// Supplementary groups.
        groups: Vec<String> = "groups" [since(V3_1)],
        /// Home directory.
        home_dir: String = "homeDir" [since(V3_1)],
        /// Name.
        name: String = "name",
        /// Whether to go without a home directory.
        no_create_home: bool = "noCreateHome" [since(V3_1)],
        /// Whether to stay out of the login databases.
        no_log_init: bool = "noLogInit" [since(V3_1)],
        /// Whether to go without a group of the same name.
        no_user_group: bool = "noUserGroup" [since(V3_1)],
        /// Encrypted password.
        password_hash: Option<String> = "passwordHash",
        /// Primary group.
        primary_group: String = "primaryGroup" [since(V3_1)],
        /// Public keys that may log in.
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        /// Login shell.
        shell: String = "shell" [since(V3_1)],
        /// Whether it is a system user.
        system: bool = "system" [since(V3_1)],
        /// User id.
        uid: Option<i64> = "uid" [since(V3_1)],
    }
}

object! {
    /// How to create a user.
    pub struct UserCreate {
        /// Comment.
        gecos: String = "gecos",
        /// Supplementary groups.
        groups: Vec<String> = "groups",
        /// Home directory.
        home_dir: String = "homeDir",
        /// Whether to go without a home directory.
        no_create_home: bool = "noCreateHome",
        /// Whether to stay out of the login databases.
        no_log_init: bool = "noLogInit",
        /// Whether to go without a group of the same name.
        no_user_group: bool = "noUserGroup",
        /// Primary group.
        primary_group: String = "primaryGroup",
        /// Login shell.
        shell: String = "shell",
        /// Whether it is a system user.
        system: bool = "system",
        /// User id.
        uid: Option<i64> = "uid",
    }
}

keyed!(Group by name, User by name);
