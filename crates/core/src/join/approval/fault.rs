//! Reasons not to approve a certificate request.

/// A reason not to approve a certificate request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalFault {
    /// The subject is not that of a node.
    #[error("its subject is {0}, not O=system:nodes, CN=system:node:NAME")]
    Subject(String),
    /// The name in the subject cannot be the name of a node.
    #[error("{0:?} cannot be the name of a node")]
    NodeName(String),
    /// Another user made the request.
    #[error("it was requested by {found}, not by {expected}")]
    User {
        /// User that made the request.
        found: String,
        /// User that may make it.
        expected: String,
    },
    /// The user is not in the group.
    #[error("the requesting user is not in the group {0}")]
    Group(String),
    /// The usages are other ones.
    #[error("its usages are {found}, not {expected}")]
    Usages {
        /// Requested usages.
        found: String,
        /// Usages of a kubelet.
        expected: String,
    },
    /// A client certificate has alternative names.
    #[error("a client certificate of a kubelet has no alternative names, and this one has {0}")]
    Names(String),
    /// A serving certificate has no names.
    #[error("a serving certificate needs the names or addresses that the node is reached by")]
    NoNames,
    /// A serving certificate has a name that is not the node's.
    #[error("{0} is neither a name nor an address of the node")]
    OtherName(String),
    /// The node does not exist.
    #[error("node {0} does not exist")]
    NoNode(String),
    /// The node exists, and nothing shows that the request is from its machine.
    #[error(
        "node {0} exists, and nothing shows that the request is from its machine; delete the node, \
         or let the machine join with a token of `mco token create --node {0}`"
    )]
    NodeExists(String),
    /// No machine joined with a token that could be this node.
    #[error(
        "no machine that fetched its config with a join token in the last day waits to become \
         node {0}"
    )]
    NoJoin(String),
    /// Machines of several pools wait, and none of them told its name.
    #[error(
        "machines of several pools ({0}) wait without a node name; make tokens with \
         `mco token create --node NAME`, or approve by hand"
    )]
    Ambiguous(String),
}
