//! Serde functions that read and write members as the reference's types do.

use serde::{Deserialize, Deserializer};

/// Deserializes `null` as the type's default, as Go's decoder does.
pub(crate) fn null_as_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// Returns true if the value is its type's default, and so need not be serialized.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
