//! Selection of the content coding of a response, and gzip.

use std::io::Write as _;

use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, header::ACCEPT_ENCODING};

/// Returns true if the client prefers gzip to the plain document (RFC 9110, section 12.5.3).
///
/// Ignition sends `identity`; curl with `--compressed` and most libraries send `gzip`.
#[must_use]
pub fn prefers_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    let values = headers.get_all(ACCEPT_ENCODING);
    for entry in values.iter().filter_map(text).flat_map(|text| text.split(',')) {
        let mut parts = entry.split(';').map(str::trim);
        let weight = parts.clone().skip(1).find_map(weight).unwrap_or(1000);
        let coding = parts.next().unwrap_or_default();
        let slot = match coding {
            _ if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") => {
                &mut gzip
            }
            _ if coding.eq_ignore_ascii_case("identity") => &mut identity,
            "*" => &mut any,
            _ => continue,
        };
        slot.get_or_insert(weight);
    }
    let gzip = gzip.or(any).unwrap_or(0);
    // Without an entry, the plain document is acceptable, and worth less than any coding.
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Returns the weight of a parameter `q=0.5`, in thousandths. A weight that does not parse is zero.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, rest) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    if rest.len() > 3 || !rest.bytes().all(|digit| digit.is_ascii_digit()) {
        return Some(0);
    }
    let thousandths: u16 = format!("{rest:0<3}").parse().unwrap_or(0);
    match whole {
        "0" => Some(thousandths),
        "1" if thousandths == 0 => Some(1000),
        _ => Some(0),
    }
}

/// Compresses a document; `None` if that does not make it smaller.
pub(crate) fn gzip(body: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writes to memory do not fail.
    encoder.write_all(body).ok()?;
    let compressed = encoder.finish().ok()?;
    (compressed.len() < body.len()).then_some(compressed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefers(values: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        prefers_gzip(&headers)
    }

    #[test]
    fn gzip_is_for_clients_that_name_it() {
        let rows: [(&[&str], bool); 20] = [
            (&[], false),
            (&[""], false),
            (&["identity"], false),
            (&["gzip"], true),
            (&["GZip"], true),
            (&["x-gzip"], true),
            (&["deflate, gzip;q=1.0, *;q=0.5"], true),
            (&["gzip;q=0"], false),
            (&["gzip;q=0.000"], false),
            (&["gzip; q=0.001"], true),
            (&["gzip;q=0.5, identity"], false),
            (&["gzip;q=0.5, identity;q=0.5"], true),
            (&["*"], true),
            (&["*;q=0"], false),
            (&["*, gzip;q=0"], false),
            (&["br", "gzip"], true),
            (&["gzip;q=nonsense"], false),
            (&["gzip;q=2"], false),
            (&["gzipped"], false),
            (&["\u{e9}"], false),
        ];
        for (values, expected) in rows {
            assert_eq!(prefers(values), expected, "{values:?}");
        }
    }

    #[test]
    fn only_a_smaller_body_is_sent_compressed() {
        assert_eq!(gzip(b"{}"), None);
        let body = vec![b'x'; 10_000];
        let compressed = gzip(&body).unwrap();
        assert!(compressed.len() < 100, "{}", compressed.len());
        assert_eq!(mco_ignition::gzip::decompress(&compressed, body.len()), Ok(body));
    }
}
