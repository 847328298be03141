//! Configs of 2.x, from bytes to the newest version.
