//! Subject and alternative names of a certificate request.

use std::net::IpAddr;

use super::{ApprovalFault, NODE_USER, NODES_GROUP, NodeFacts};
use crate::join::machine::is_node_name;

/// Subject of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// Common names; a node has one.
    pub common_names: Vec<String>,
    /// Organizations; a node has one.
    pub organizations: Vec<String>,
    /// True if the subject has other attributes.
    pub has_others: bool,
}

impl Subject {
    /// Returns the name of the node, if the subject has one common name of that form.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self.common_names.as_slice() {
            [one] => one.strip_prefix(NODE_USER),
            _ => None,
        }
    }

    pub(super) fn faults(&self) -> Vec<ApprovalFault> {
        let is_of_nodes = self.organizations == [NODES_GROUP] && !self.has_others;
        match self.node() {
            Some(node) if is_of_nodes && is_node_name(node) => Vec::new(),
            Some(node) if is_of_nodes => vec![ApprovalFault::NodeName(node.to_owned())],
            Some(_) | None => vec![ApprovalFault::Subject(self.text())],
        }
    }

    fn text(&self) -> String {
        let organizations = self.organizations.iter().map(|one| format!("O={one}"));
        let names = self.common_names.iter().map(|one| format!("CN={one}"));
        let others = self.has_others.then(|| "other attributes".to_owned());
        let parts: Vec<String> = organizations.chain(names).chain(others).collect();
        if parts.is_empty() { "empty".to_owned() } else { parts.join(", ") }
    }
}

/// Alternative names of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// DNS names.
    pub dns: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Names of other kinds: e-mail addresses, URIs.
    pub others: Vec<String>,
}

impl Names {
    /// Returns all names as text; `None` if there are none.
    pub(super) fn any(&self) -> Option<String> {
        let addresses = self.addresses.iter().map(ToString::to_string);
        let all = self.dns.iter().cloned().chain(addresses).chain(self.others.iter().cloned());
        let all: Vec<String> = all.collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// Checks the names of a serving certificate: those of the node, and no others.
    pub(super) fn faults(&self, name: &str, node: Option<&NodeFacts>) -> Vec<ApprovalFault> {
        let Some(node) = node.filter(|node| node.name == name) else {
            return vec![ApprovalFault::NoNode(name.to_owned())];
        };
        let is_own_name = |dns: &&String| **dns == name || node.addresses.contains(dns);
        let own: Vec<IpAddr> = node.addresses.iter().filter_map(|one| one.parse().ok()).collect();
        let other_names = self.dns.iter().filter(|dns| !is_own_name(dns)).cloned();
        let other_addresses =
            self.addresses.iter().filter(|one| !own.contains(one)).map(ToString::to_string);
        let mut faults: Vec<ApprovalFault> = other_names
            .chain(other_addresses)
            .chain(self.others.iter().cloned())
            .map(ApprovalFault::OtherName)
            .collect();
        if self.dns.is_empty() && self.addresses.is_empty() {
            faults.push(ApprovalFault::NoNames);
        }
        faults
    }
}
