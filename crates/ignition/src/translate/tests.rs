//! Steps down, and the way back.
