//! The API server's side of the world, and how every process words what it reports.

pub mod report;
