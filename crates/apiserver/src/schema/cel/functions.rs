//! The CEL functions that Kubernetes adds, as far as CRDs in use need them.

use std::{net::IpAddr, sync::Arc};

use ::cel::{
    Context, ExecutionError, Value as Cel,
    extractors::This,
    objects::{Opaque, OptionalValue},
};
use mco_api::quantity::Quantity;

use super::super::format;
use crate::admit::name;

#[derive(Debug, PartialEq, Eq)]
struct Ip(IpAddr);

impl Opaque for Ip {
    fn runtime_type_name(&self) -> &'static str {
        "net.IP"
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Cidr(IpAddr, u8);

impl Opaque for Cidr {
    fn runtime_type_name(&self) -> &'static str {
        "net.CIDR"
    }
}

#[derive(Debug)]
struct NamedFormat(&'static str, Check);

impl PartialEq for NamedFormat {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for NamedFormat {}

impl Opaque for NamedFormat {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.NamedFormat"
    }
}

/// A predicate that tests the format of a text.
type Check = fn(&str) -> bool;

fn failed(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn opaque<T: Opaque>(value: T) -> Cel {
    Cel::Opaque(Arc::new(value))
}

/// Adds the functions to the context. Functions that CEL already has are not replaced.
pub(super) fn add(context: &mut Context<'_, '_>) {
    let _ = context.add_function("isIP", |text: Arc<String>| text.parse::<IpAddr>().is_ok());
    let _ = context.add_function("ip", |text: Arc<String>| -> Result<Cel, ExecutionError> {
        text.parse().map(|ip| opaque(Ip(ip))).map_err(|error| failed("ip", error))
    });
    let _ = context.add_function("isCIDR", |text: Arc<String>| format::is_cidr(&text));
    let _ = context.add_function("cidr", |text: Arc<String>| -> Result<Cel, ExecutionError> {
        let (ip, length) = format::cidr(&text).ok_or_else(|| failed("cidr", "not a CIDR block"))?;
        Ok(opaque(Cidr(ip, length)))
    });
    let _ = context.add_function("prefixLength", |This(cidr): This<Cel>| {
        let Cel::Opaque(cidr) = &cidr else { return Err(failed("prefixLength", "not a CIDR")) };
        let cidr = cidr.downcast_ref::<Cidr>();
        cidr.map(|cidr| i64::from(cidr.1)).ok_or_else(|| failed("prefixLength", "not a CIDR"))
    });
    let _ = context.add_function("family", |This(ip): This<Cel>| {
        let Cel::Opaque(ip) = &ip else { return Err(failed("family", "not an IP")) };
        let ip = ip.downcast_ref::<Ip>().ok_or_else(|| failed("family", "not an IP"))?;
        Ok(if ip.0.is_ipv4() { 4_i64 } else { 6 })
    });
    let _ = context.add_function("isURL", |text: Arc<String>| format::is_url(&text));
    add_formats(context);
    add_quantities(context);
}

fn add_formats(context: &mut Context<'_, '_>) {
    let formats: [(&'static str, Check); 9] = [
        ("dns1123Label", name::is_label),
        ("dns1123Subdomain", name::is_subdomain),
        ("dns1035Label", name::is_rfc1035_label),
        ("qualifiedName", name::is_qualified),
        ("labelValue", name::is_label_value),
        ("uri", format::is_url),
        ("uuid", |text| format::holds("uuid", text)),
        ("byte", |text| format::holds("byte", text)),
        ("datetime", |text| format::holds("date-time", text)),
    ];
    for (name, holds) in formats {
        let _ = context
            .add_function(&format!("format.{name}"), move || opaque(NamedFormat(name, holds)));
    }
    let _ = context.add_function("validate", |This(form): This<Cel>, text: Arc<String>| {
        let Cel::Opaque(form) = &form else { return Err(failed("validate", "not a format")) };
        let form = form.downcast_ref::<NamedFormat>();
        let form = form.ok_or_else(|| failed("validate", "not a format"))?;
        Ok(opaque(if form.1(&text) {
            OptionalValue::none()
        } else {
            let why = format!("must be a valid {}", form.0);
            OptionalValue::of(Cel::List(Arc::new(vec![Cel::String(Arc::new(why))])))
        }))
    });
}

fn add_quantities(context: &mut Context<'_, '_>) {
    let _ = context.add_function("isQuantity", |text: Arc<String>| quantity(&text).is_some());
    let _ = context.add_function("quantity", |text: Arc<String>| {
        quantity(&text).ok_or_else(|| failed("quantity", "not a quantity"))
    });
}

/// Parses a quantity (`1500m`, `2Gi`) into a number.
fn quantity(text: &str) -> Option<f64> {
    Quantity::parse(text).ok().map(|quantity| quantity.approximate())
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn quantities_have_their_units() {
        assert_eq!(quantity("1500m"), Some(1.5));
        assert_eq!(quantity("2Gi"), Some(2_147_483_648.0));
        assert_eq!(quantity("1e3"), Some(1000.0));
        assert_eq!(quantity("x"), None);
        assert_eq!(quantity("inf"), None);
    }
}
