//! x
#![allow(dead_code)]
mod check;
mod fault;
mod load;
mod print;
mod suggest;
fn main() {}
