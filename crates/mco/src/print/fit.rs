//! Text that fits into the columns of a terminal: tables with fewer columns and shorter names, and
//! sentences that are broken between words.
//!
//! Pure: output that is not on a terminal never comes here and stays complete.

use crate::remote::table::GAP;

/// Hexadecimal digits of a rendered config's hash.
const HASH_DIGITS: usize = 32;

/// Digits of a hash that a short name keeps.
const SHORT_DIGITS: usize = 7;

/// Indentation of the second and every further line of a sentence.
const INDENT: &str = "  ";

/// Narrowest terminal that text is fitted to; a narrower one cuts the lines.
const MIN_COLUMNS: usize = 30;

/// Returns the table with at most `columns` characters in a line, the titles first.
///
/// Hashes in names of rendered configs are shortened, then the columns with the titles `dispensable` are
/// left out in this order, then the text in the last column is cut after a word.
pub(crate) fn table(
    lines: &[Vec<String>],
    columns: usize,
    dispensable: &[&str],
) -> Vec<Vec<String>> {
    let columns = columns.max(MIN_COLUMNS);
    let mut lines = lines.to_vec();
    if width(&lines) <= columns {
        return lines;
    }
    for cell in lines.iter_mut().flatten() {
        *cell = short_names(cell);
    }
    for title in dispensable {
        if width(&lines) <= columns {
            break;
        }
        let place = lines.first().and_then(|titles| titles.iter().position(|it| it == title));
        for line in &mut lines {
            if let Some(place) = place.filter(|place| *place < line.len()) {
                line.remove(place);
            }
        }
    }
    let surplus = width(&lines).saturating_sub(columns);
    if surplus > 0 {
        let last = lines.iter().map(Vec::len).max().unwrap_or_default().saturating_sub(1);
        let widest = column_width(&lines, last);
        for cell in lines.iter_mut().filter_map(|line| line.get_mut(last)) {
            *cell = cut(cell, widest.saturating_sub(surplus));
        }
    }
    lines
}

fn width(lines: &[Vec<String>]) -> usize {
    let count = lines.iter().map(Vec::len).max().unwrap_or_default();
    let cells: usize = (0..count).map(|index| column_width(lines, index)).sum();
    cells + GAP * count.saturating_sub(1)
}

fn column_width(lines: &[Vec<String>], index: usize) -> usize {
    let cells = lines.iter().filter_map(|line| line.get(index));
    cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
}

/// Returns the text with the hash of each rendered config cut to its first digits.
fn short_names(text: &str) -> String {
    let mut short = String::with_capacity(text.len());
    let mut digits = String::new();
    let flush = |digits: &mut String, short: &mut String| {
        if digits.len() == HASH_DIGITS {
            short.extend(digits.chars().take(SHORT_DIGITS));
            short.push('…');
        } else {
            short.push_str(digits);
        }
        digits.clear();
    };
    for c in text.chars() {
        if c.is_ascii_hexdigit() && !c.is_ascii_uppercase() {
            digits.push(c);
        } else {
            flush(&mut digits, &mut short);
            short.push(c);
        }
    }
    flush(&mut digits, &mut short);
    short
}

/// Returns the text with at most `columns` characters, cut after a word if there is one.
fn cut(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    let is_end = text.chars().nth(columns.saturating_sub(1)) == Some(' ');
    let kept =
        if is_end { &kept } else { kept.rsplit_once(' ').map_or(&*kept, |(words, _)| words) };
    format!("{}…", kept.trim_end())
}

/// Returns the text with at most `columns` characters in a line, broken between words. A command in
/// backquotes stays on one line if it fits there. Further lines are indented.
pub(crate) fn paragraph(text: &str, columns: usize) -> String {
    let columns = columns.max(MIN_COLUMNS);
    let lines: Vec<String> = text.split('\n').map(|line| broken(line, columns)).collect();
    lines.join("\n")
}

fn broken(text: &str, columns: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut words: std::collections::VecDeque<String> = units(text).into();
    while let Some(unit) = words.pop_front() {
        let is_start = line.trim().is_empty();
        let taken = line.chars().count() + usize::from(!is_start);
        let space = columns.saturating_sub(taken);
        let length = unit.chars().count();
        if length <= space || (is_start && !unit.contains(' ')) {
            if !is_start {
                line.push(' ');
            }
            line.push_str(&unit);
        } else if unit.contains(' ') && length > columns.saturating_sub(INDENT.len()) {
            // No line has the space for the command: its words are broken as all others.
            for word in unit.rsplit(' ') {
                words.push_front(word.to_owned());
            }
        } else {
            lines.push(std::mem::replace(&mut line, INDENT.to_owned()));
            words.push_front(unit);
        }
    }
    lines.push(line);
    lines.join("\n")
}

/// Splits a text into words and commands in backquotes, each with the punctuation around it.
fn units(text: &str) -> Vec<String> {
    let mut units: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split(' ') {
        match units.last_mut().filter(|_| is_open) {
            Some(unit) => {
                unit.push(' ');
                unit.push_str(word);
            }
            None => units.push(word.to_owned()),
        }
        if word.matches('`').count() % 2 == 1 {
            is_open = !is_open;
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "948142f885ad25b89d2c283b2c93bbfe";

    fn lines(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn a_table_gets_shorter_names_then_fewer_columns() {
        let config = format!("rendered-worker-{HASH}");
        let rows: &[&[&str]] =
            &[&["POOL", "CONFIG", "UPDATED", "DONE"], &["worker", &config, "True", "3"]];
        let whole = lines(rows);
        assert_eq!(table(&whole, 200, &["UPDATED"]), whole, "all columns fit");
        let short = "rendered-worker-948142f…";
        let want =
            lines(&[&["POOL", "CONFIG", "UPDATED", "DONE"], &["worker", short, "True", "3"]]);
        assert_eq!(table(&whole, 60, &["UPDATED"]), want);
        let want = lines(&[&["POOL", "CONFIG", "DONE"], &["worker", short, "3"]]);
        assert_eq!(table(&whole, 45, &["UPDATED", "CONFIG"]), want);
        let want = lines(&[&["POOL", "DONE"], &["worker", "3"]]);
        assert_eq!(table(&whole, 35, &["UPDATED", "CONFIG"]), want);
    }

    #[test]
    fn the_last_column_is_cut_after_a_word() {
        let whole = lines(&[&["NODE", "REASON"], &["a", "content mismatch for file /etc/motd"]]);
        for (columns, want) in [(31, "content mismatch for…"), (34, "content mismatch for file…")]
        {
            let shown = table(&whole, columns, &[]);
            assert_eq!(shown.last().unwrap().last().unwrap(), want, "{columns}");
            assert!(width(&shown) <= columns, "{columns}");
        }
    }

    #[test]
    fn a_sentence_is_broken_between_words_and_not_in_a_command() {
        let text =
            "node a is draining; lower the budget with `kubectl -n shop edit pdb keep`; it goes on";
        assert_eq!(paragraph(text, 200), text);
        assert_eq!(
            paragraph(text, 50),
            "node a is draining; lower the budget with\n  `kubectl -n shop edit pdb keep`; it goes on"
        );
        for columns in 30..90 {
            let shown = paragraph(text, columns);
            assert!(
                shown.lines().all(|line| line.chars().count() <= columns),
                "{columns}: {shown}"
            );
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&shown), words(text), "{columns}");
        }
        let long = "x".repeat(80);
        assert_eq!(paragraph(&format!("a {long} b"), 40), format!("a\n  {long}\n  b"));
    }
}
