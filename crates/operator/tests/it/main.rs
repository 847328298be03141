//! The operator against the embedded API server and a real one.

#[cfg(test)]
mod conditions;
#[cfg(test)]
mod facts;
#[cfg(test)]
mod install;
#[cfg(test)]
mod joining;
#[cfg(test)]
mod keep;
#[cfg(test)]
mod lease;
#[cfg(test)]
mod machine_configuration;
#[cfg(test)]
mod namespace;
#[cfg(test)]
mod operands;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod support;
#[cfg(test)]
mod tls;
