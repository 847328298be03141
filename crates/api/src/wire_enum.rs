//! Enums of words that keep unknown words.
//!
//! A newer cluster may send a word that this version does not know. The reference keeps such values
//! as plain strings, so one unknown word must not make a whole object unreadable: every enum here
//! has a variant `Other` that keeps the text. The CRD schema still lists the known words only.

/// Declares an enum of words, with a variant `Other` for unknown words.
///
/// The first variant is the default. The word of each variant follows after `=`.
macro_rules! wire_enum {
    (
        $(#[$doc:meta])*
        pub enum $name:ident {
            $(#[$first_doc:meta])* $first:ident = $first_word:literal,
            $( $(#[$variant_doc:meta])* $variant:ident = $word:literal, )*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $( $(#[$variant_doc])* $variant, )*
            /// A word that this version does not know.
            Other(String),
        }

        impl $name {
            /// All words that the schema allows.
            pub const WORDS: &'static [&'static str] = &[$first_word $(, $word)*];

            /// Returns the word on the wire.
            #[must_use]
            pub fn as_str(&self) -> &str {
                match self {
                    Self::$first => $first_word,
                    $( Self::$variant => $word, )*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $first_word => Self::$first,
                    $( $word => Self::$variant, )*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = std::convert::Infallible;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok(Self::from(text))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Ok(Self::from(String::deserialize(from)?.as_str()))
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "enum": Self::WORDS})
            }
        }
    };
}

pub(crate) use wire_enum;

#[cfg(test)]
mod tests {
    use crate::annotation::DaemonState;

    #[test]
    fn an_unknown_word_survives_a_round_trip() {
        for word in ["\"Done\"", "\"Working\"", "\"Meditating\"", "\"\""] {
            let state: DaemonState = serde_json::from_str(word).expect("any text parses");
            assert_eq!(serde_json::to_string(&state).expect("text"), word);
        }
        assert_eq!(DaemonState::from("Working"), DaemonState::Working);
        assert_eq!(DaemonState::from("working"), DaemonState::Other("working".to_owned()));
    }

    #[test]
    fn only_text_is_a_word() {
        assert!(serde_json::from_str::<DaemonState>("3").is_err());
    }
}
