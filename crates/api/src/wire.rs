//! Reading values as the reference's types do.

use serde::{Deserialize, Deserializer};

/// Reads `null` as the type's default, as Go's decoder does.
pub(crate) fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Whether a value is its type's default, and so need not be written.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
