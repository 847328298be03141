//! The description of a machine by its own headers, and the check against a token's binding.
//!
//! All of it but the address is what the machine says about itself. A binding to it keeps a token
//! from being used by mistake on another machine; only the address, and in part the TPM, hold
//! against an attacker.

use std::{fmt, net::IpAddr};

use mco_api::join_token::{Binding, header};

/// Maximum length of a join id.
const MAX_JOIN_ID: usize = 64;
/// Maximum number of MAC addresses that a machine may send.
const MAX_MACS: usize = 64;
/// Maximum length of a node name, which is a DNS name.
const MAX_NODE_NAME: usize = 253;

/// A machine that asks for its config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    /// Address that the machine connects from.
    pub address: IpAddr,
    /// Random text that the machine made once and keeps; empty if not sent.
    pub join_id: String,
    /// Contents of `/etc/machine-id`; empty if not sent.
    pub machine_id: String,
    /// MAC addresses in lower case.
    pub macs: Vec<String>,
    /// Hash of the TPM's endorsement key; empty if not sent.
    pub tpm_ek: String,
    /// Name that the node will have; empty if not sent.
    pub node: String,
}

/// A value that is not of the form that it must have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is not {expected}")]
pub struct MachineFactError {
    /// Header or flag.
    pub name: String,
    /// The expected form.
    pub expected: &'static str,
}

/// The form of one fact.
#[derive(Clone, Copy, Debug)]
enum Form {
    JoinId,
    MachineId,
    Mac,
    TpmEk,
    Node,
}

impl Form {
    const fn expected(self) -> &'static str {
        match self {
            Self::JoinId => "1 to 64 letters, digits, dots, dashes or underscores",
            Self::MachineId => "32 hexadecimal digits, as in /etc/machine-id",
            Self::Mac => "a MAC address such as 52:54:00:12:34:56",
            Self::TpmEk => "a SHA-256 in 64 hexadecimal digits",
            Self::Node => "a node name: lower case letters, digits, dashes and dots",
        }
    }

    /// Returns the value in its only form, in lower case.
    fn read(self, text: &str) -> Option<String> {
        let text = text.trim();
        let hex = |length| text.len() == length && text.bytes().all(|b| b.is_ascii_hexdigit());
        let lower = text.to_ascii_lowercase();
        let fits = match self {
            Self::JoinId => {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
                return (!text.is_empty() && text.len() <= MAX_JOIN_ID && text.bytes().all(plain))
                    .then(|| text.to_owned());
            }
            Self::MachineId => {
                let plain = lower.replace('-', "");
                let fits = plain.len() == 32 && plain.bytes().all(|b| b.is_ascii_hexdigit());
                return fits.then_some(plain);
            }
            Self::TpmEk => hex(64),
            Self::Mac => is_mac(&lower),
            Self::Node => is_node_name(text),
        };
        fits.then_some(lower)
    }

    fn read_named(self, name: &str, text: &str) -> Result<String, MachineFactError> {
        let error = || MachineFactError { name: name.to_owned(), expected: self.expected() };
        self.read(text).ok_or_else(error)
    }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split(':').collect();
    // InfiniBand has 20 bytes.
    matches!(parts.len(), 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Returns true if the text can be the name of a node.
#[must_use]
pub fn is_node_name(text: &str) -> bool {
    let label = |part: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty()
            && part.bytes().all(inner)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    !text.is_empty() && text.len() <= MAX_NODE_NAME && text.split('.').all(label)
}

impl MachineFacts {
    /// Returns a machine of which only the address is known.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self {
            address,
            join_id: String::new(),
            machine_id: String::new(),
            macs: Vec::new(),
            tpm_ek: String::new(),
            node: String::new(),
        }
    }

    /// Reads the headers of a request; `get` returns the value of a header, if it is sent.
    pub fn read<'h>(
        address: IpAddr,
        get: impl Fn(&'static str) -> Option<&'h str>,
    ) -> Result<Self, MachineFactError> {
        let one = |form: Form, name| match get(name).map(str::trim) {
            None | Some("") => Ok(String::new()),
            Some(text) => form.read_named(name, text),
        };
        let macs = get(header::MAC).unwrap_or_default().split(',').map(str::trim);
        let macs: Vec<&str> = macs.filter(|mac| !mac.is_empty()).take(MAX_MACS).collect();
        let macs = macs.into_iter().map(|mac| Form::Mac.read_named(header::MAC, mac));
        Ok(Self {
            address,
            join_id: one(Form::JoinId, header::JOIN_ID)?,
            machine_id: one(Form::MachineId, header::MACHINE_ID)?,
            macs: macs.collect::<Result<_, _>>()?,
            tpm_ek: one(Form::TpmEk, header::TPM_EK)?,
            node: one(Form::Node, header::NODE_NAME)?,
        })
    }
}

/// Returns a binding in its only form. A member that is not of the form it must have is an error
/// that names the flag.
pub fn parse_binding(given: &Binding) -> Result<Binding, MachineFactError> {
    let one = |form: Form, flag: &str, text: &str| match text.trim() {
        "" => Ok(String::new()),
        text => form.read_named(flag, text),
    };
    let address = match given.address.trim() {
        "" => String::new(),
        text => Network::parse(text).map(|network| network.to_string()).ok_or_else(|| {
            let expected = "an address, or a range such as 10.0.4.0/24";
            MachineFactError { name: "--bind-address".to_owned(), expected }
        })?,
    };
    Ok(Binding {
        machine_id: one(Form::MachineId, "--bind-machine-id", &given.machine_id)?,
        mac: one(Form::Mac, "--bind-mac", &given.mac)?,
        address,
        tpm_ek: one(Form::TpmEk, "--bind-tpm-ek", &given.tpm_ek)?,
        node: one(Form::Node, "--node", &given.node)?,
    })
}

/// The part of a binding that a machine does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundTo {
    /// The machine id.
    MachineId,
    /// A MAC address.
    Mac,
    /// The address.
    Address,
    /// The TPM.
    TpmEk,
    /// The name of the node.
    Node,
}

impl fmt::Display for BoundTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MachineId => "machine id",
            Self::Mac => "MAC address",
            Self::Address => "address",
            Self::TpmEk => "TPM endorsement key",
            Self::Node => "node name",
        })
    }
}

/// Returns the first part of the binding that the machine does not fit. A machine that does not send
/// a fact does not fit a binding to it, except for the node's name, which is checked again when its
/// certificate is approved.
#[must_use]
pub fn mismatch(binding: &Binding, machine: &MachineFacts) -> Option<BoundTo> {
    let bound = |member: &str| !member.is_empty();
    if bound(&binding.machine_id) && binding.machine_id != machine.machine_id {
        return Some(BoundTo::MachineId);
    }
    if bound(&binding.mac) && !machine.macs.contains(&binding.mac) {
        return Some(BoundTo::Mac);
    }
    if bound(&binding.address) {
        let network = Network::parse(&binding.address);
        if !network.is_some_and(|network| network.contains(machine.address)) {
            return Some(BoundTo::Address);
        }
    }
    if bound(&binding.tpm_ek) && binding.tpm_ek != machine.tpm_ek {
        return Some(BoundTo::TpmEk);
    }
    let other_name = bound(&machine.node) && machine.node != binding.node;
    (bound(&binding.node) && other_name).then_some(BoundTo::Node)
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    prefix: u32,
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix } = self;
        if *prefix == width(*address) {
            write!(f, "{address}")
        } else {
            write!(f, "{address}/{prefix}")
        }
    }
}

const fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Returns the address as a number, left-aligned in 128 bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok()?.to_canonical();
        let width = width(address);
        let prefix = match prefix {
            Some(text) if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok()?,
            Some(_) => return None,
            None => width,
        };
        (prefix <= width).then_some(Self { address, prefix })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let differing = bits(self.address) ^ bits(address);
        // Nothing but a shift by the whole width leaves no bit to compare.
        let rest = 128 - self.prefix;
        address.is_ipv4() == self.address.is_ipv4()
            && differing.checked_shr(rest).unwrap_or_default() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(headers: &[(&'static str, &'static str)]) -> Result<MachineFacts, MachineFactError> {
        let address = "10.0.0.7".parse().unwrap();
        MachineFacts::read(address, |name| {
            headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
        })
    }

    #[test]
    fn headers_are_read_in_one_form_or_refused_by_name() {
        let id = "0123456789ABCDEF0123456789abcdef";
        let all = read(&[
            (header::JOIN_ID, "a1-B_2."),
            (header::MACHINE_ID, id),
            (header::MAC, "52:54:00:AA:bb:01, 52:54:00:aa:bb:02,"),
            (header::NODE_NAME, "worker-1.example"),
        ]);
        let all = all.unwrap();
        assert_eq!(all.join_id, "a1-B_2.");
        assert_eq!(all.machine_id, id.to_lowercase());
        assert_eq!(all.macs, ["52:54:00:aa:bb:01", "52:54:00:aa:bb:02"]);
        assert_eq!(all.node, "worker-1.example");
        assert_eq!(read(&[]).unwrap(), MachineFacts::at(all.address));
        let long: &'static str = Box::leak("x".repeat(65).into_boxed_str());
        let wrong = [
            (header::JOIN_ID, long),
            (header::JOIN_ID, "a b"),
            (header::JOIN_ID, "\"}"),
            (header::MACHINE_ID, "0123"),
            (header::MACHINE_ID, "0123456789abcdef0123456789abcdeg"),
            (header::MAC, "52:54:00:aa:bb"),
            (header::MAC, "52-54-00-aa-bb-01"),
            (header::TPM_EK, "abc"),
            (header::NODE_NAME, "Worker"),
            (header::NODE_NAME, "a/../b"),
            (header::NODE_NAME, "-a"),
        ];
        for (name, value) in wrong {
            assert_eq!(read(&[(name, value)]).unwrap_err().name, name, "{value}");
        }
    }

    #[test]
    fn a_range_contains_its_addresses_and_no_others() {
        let rows = [
            ("10.0.4.0/24", "10.0.4.255", true),
            ("10.0.4.0/24", "10.0.5.0", false),
            ("10.0.4.9", "10.0.4.9", true),
            ("10.0.4.9", "10.0.4.8", false),
            ("10.0.4.9/32", "::ffff:10.0.4.9", true),
            ("0.0.0.0/0", "192.0.2.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db9::1", true),
            ("::/0", "10.0.0.1", false),
        ];
        for (range, address, expected) in rows {
            let network = Network::parse(range).unwrap();
            assert_eq!(network.contains(address.parse().unwrap()), expected, "{range} {address}");
        }
        for text in ["10.0.4.0/33", "10.0.4/24", "10.0.4.0/", "10.0.4.0/+8", "host", "::/129"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_binding_fits_its_machine_and_no_other() {
        let (id, ek) = ("0123456789abcdef0123456789abcdef", "ab".repeat(32));
        let machine = MachineFacts {
            address: "10.0.0.7".parse().unwrap(),
            join_id: String::new(),
            machine_id: id.to_owned(),
            macs: vec!["52:54:00:aa:bb:01".to_owned(), "52:54:00:aa:bb:02".to_owned()],
            tpm_ek: ek.clone(),
            node: "a".to_owned(),
        };
        let bind = |change: fn(&mut Binding)| {
            let mut binding = Binding::default();
            change(&mut binding);
            binding
        };
        let whole = Binding {
            machine_id: "01234567-89AB-CDEF-0123-456789ABCDEF".to_owned(),
            mac: "52:54:00:AA:BB:02".to_owned(),
            address: "10.0.0.0/28".to_owned(),
            tpm_ek: ek.to_uppercase(),
            node: "a".to_owned(),
        };
        let whole = parse_binding(&whole).unwrap();
        let rows = [
            (Binding::default(), None),
            (whole, None),
            (bind(|b| b.machine_id = "f".repeat(32)), Some(BoundTo::MachineId)),
            (bind(|b| b.mac = "52:54:00:aa:bb:03".to_owned()), Some(BoundTo::Mac)),
            (bind(|b| b.address = "10.0.0.8".to_owned()), Some(BoundTo::Address)),
            (bind(|b| b.address = "damaged".to_owned()), Some(BoundTo::Address)),
            (bind(|b| b.tpm_ek = "cd".repeat(32)), Some(BoundTo::TpmEk)),
            (bind(|b| b.node = "b".to_owned()), Some(BoundTo::Node)),
        ];
        for (binding, expected) in rows {
            assert_eq!(mismatch(&binding, &machine), expected, "{binding:?}");
            // A machine that says nothing fits only the bindings to address and name.
            let silent = mismatch(&binding, &MachineFacts::at(machine.address));
            let by_name = binding.node.is_empty() || binding.machine_id.is_empty();
            assert_eq!(
                silent.is_none(),
                expected.is_none() && by_name || expected == Some(BoundTo::Node),
                "{binding:?}"
            );
        }
    }

    #[test]
    fn a_wrong_binding_names_its_flag() {
        let bind = |change: fn(&mut Binding)| {
            let mut binding = Binding::default();
            change(&mut binding);
            parse_binding(&binding).unwrap_err().to_string()
        };
        let rows = [
            (bind(|b| b.machine_id = "x".to_owned()), "--bind-machine-id"),
            (bind(|b| b.mac = "x".to_owned()), "--bind-mac"),
            (bind(|b| b.address = "x".to_owned()), "--bind-address"),
            (bind(|b| b.tpm_ek = "x".to_owned()), "--bind-tpm-ek"),
            (bind(|b| b.node = "X".to_owned()), "--node"),
        ];
        for (text, flag) in rows {
            assert!(text.starts_with(flag), "{text}");
        }
    }
}
