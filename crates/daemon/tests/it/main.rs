//! The daemon against the embedded API, with a real tree. The test plays the controllers.

#![expect(clippy::disallowed_methods, reason = "the tests look at the tree from outside")]

mod drift;
mod fleet;
mod update;
