//! Evaluation of `maxUnavailable` to a number of nodes.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A `maxUnavailable` that is neither a number nor a percentage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    /// The text does not end with a percent sign.
    #[error(
        "maxUnavailable: invalid value for IntOrString: invalid type: string is not a percentage"
    )]
    NotAPercentage,
    /// The text before the percent sign is no number.
    #[error(
        "maxUnavailable: invalid value for IntOrString: invalid value {0:?}: strconv.Atoi: parsing {number:?}: {fault}",
        number = .0.trim_end_matches('%'), fault = .1
    )]
    NotANumber(String, &'static str),
}

/// Returns the number of nodes of a pool with `members` that may be unavailable at a time.
///
/// Compat: a percentage is rounded down and zero becomes one, but a negative value is kept and
/// stops the pool (`pkg/controller/node/node_controller.go`).
pub fn max_unavailable(
    pool: &str,
    limit: Option<&IntOrString>,
    members: usize,
) -> Result<i64, BadLimit> {
    let count = match limit {
        // The control plane can do without one arbiter at most.
        _ if pool == "arbiter" => 1,
        None => 1,
        Some(IntOrString::Int(number)) => i64::from(*number),
        Some(IntOrString::String(text)) => {
            let number = text.strip_suffix('%').ok_or(BadLimit::NotAPercentage)?;
            let percent: i64 = number.parse().map_err(|error| bad(text, &error))?;
            let members = i128::try_from(members).unwrap_or(i128::MAX);
            let count = i128::from(percent).saturating_mul(members).div_euclid(100);
            i64::try_from(count).unwrap_or(if count < 0 { i64::MIN } else { i64::MAX })
        }
    };
    Ok(if count == 0 { 1 } else { count })
}

fn bad(text: &str, error: &std::num::ParseIntError) -> BadLimit {
    use std::num::IntErrorKind::{NegOverflow, PosOverflow};
    let fault = if matches!(error.kind(), PosOverflow | NegOverflow) {
        "value out of range"
    } else {
        "invalid syntax"
    };
    BadLimit::NotANumber(text.to_owned(), fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    // covers: NOD-5, NOD-6
    #[test]
    fn numbers_and_percentages_become_a_count_of_nodes() {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        let cases = [
            ("worker", None, Ok(1)),
            ("worker", Some(IntOrString::Int(3)), Ok(3)),
            ("worker", Some(IntOrString::Int(0)), Ok(1)),
            ("worker", Some(IntOrString::Int(-2)), Ok(-2)),
            ("worker", text("25%"), Ok(2)),
            ("worker", text("5%"), Ok(1)),
            ("worker", text("-10%"), Ok(-1)),
            ("arbiter", text("100%"), Ok(1)),
            ("worker", text("60"), Err(BadLimit::NotAPercentage)),
            ("worker", text("50 percent"), Err(BadLimit::NotAPercentage)),
            ("worker", text("x%"), Err(BadLimit::NotANumber("x%".to_owned(), "invalid syntax"))),
        ];
        for (pool, limit, expected) in cases {
            assert_eq!(max_unavailable(pool, limit.as_ref(), 10), expected, "{limit:?}");
        }
    }

    #[test]
    fn an_invalid_limit_has_the_text_of_the_reference() {
        let limit = IntOrString::String("5.5%".to_owned());
        let error = max_unavailable("worker", Some(&limit), 10).unwrap_err();
        assert_eq!(
            error.to_string(),
            "maxUnavailable: invalid value for IntOrString: invalid value \"5.5%\": \
             strconv.Atoi: parsing \"5.5\": invalid syntax"
        );
    }
}
