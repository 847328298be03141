//! The rules, one table per kind of object.
