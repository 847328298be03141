//! Reads the output of strace.

use std::collections::BTreeMap;

use anyhow::Context as _;

/// A call that changes files or makes a change durable. Paths are those below the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Create a file, or empty it.
    Create(String),
    /// Append bytes.
    Write(String, Vec<u8>),
    /// Set the length.
    Truncate(String, usize),
    /// Set the permissions.
    Mode(String, u32),
    /// Sync a file or a directory.
    Sync(String),
    /// Rename a file or link.
    Rename(String, String),
    /// Remove a file, a link or an empty directory.
    Remove(String),
    /// Create a symbolic link: target and path.
    Link(String, String),
    /// Create a directory.
    Directory(String),
}

/// Returns the successful calls below `root`.
pub(super) fn calls(text: &str, root: &str) -> anyhow::Result<Vec<Call>> {
    let mut calls = Vec::new();
    let mut unfinished: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        let Some((process, line)) = line.split_once(' ') else { continue };
        let line = line.trim_start();
        let line = if let Some(start) = line.strip_suffix(" <unfinished ...>") {
            unfinished.insert(process, start.to_owned());
            continue;
        } else if let Some((_, end)) = line.split_once(" resumed>") {
            format!("{}{end}", unfinished.remove(process).unwrap_or_default())
        } else {
            line.to_owned()
        };
        let call = call(&line, root).with_context(|| format!("failed to parse {line:.200}"))?;
        calls.extend(call);
    }
    Ok(calls)
}

fn call(line: &str, root: &str) -> anyhow::Result<Option<Call>> {
    let Some((name, rest)) = line.split_once('(') else { return Ok(None) };
    let (words, result) = words(rest);
    if result.starts_with('-') || result.is_empty() {
        return Ok(None);
    }
    let word = |number: usize| words.get(number).map_or("", String::as_str);
    let inside = |path: String| path.strip_prefix(root).map(str::to_owned);
    let opened = |number: usize| inside(descriptor(word(number)));
    let at = |number: usize| inside(join(&descriptor(word(number)), &text(word(number + 1))));
    let found = match name {
        "openat" | "openat2" if line.contains("O_CREAT") || line.contains("O_TRUNC") => {
            inside(descriptor(result)).map(Call::Create)
        }
        "write" => opened(0).map(|path| Call::Write(path, bytes(word(1)))),
        "fsync" | "fdatasync" => opened(0).map(Call::Sync),
        "fchmod" => {
            let mode = u32::from_str_radix(word(1), 8).context("the mode is no number")?;
            opened(0).map(|path| Call::Mode(path, mode))
        }
        "ftruncate" => {
            let length = word(1).parse().context("the length is no number")?;
            opened(0).map(|path| Call::Truncate(path, length))
        }
        "renameat" | "renameat2" => at(0).zip(at(2)).map(|(from, to)| Call::Rename(from, to)),
        "rename" => inside(text(word(0)))
            .zip(inside(text(word(1))))
            .map(|(from, to)| Call::Rename(from, to)),
        "unlinkat" => at(0).map(Call::Remove),
        "unlink" | "rmdir" => inside(text(word(0))).map(Call::Remove),
        "symlinkat" => at(1).map(|path| Call::Link(text(word(0)), path)),
        "mkdirat" => at(0).map(Call::Directory),
        "mkdir" => inside(text(word(0))).map(Call::Directory),
        "fchown" | "openat" | "openat2" => None,
        _ => {
            anyhow::ensure!(!line.contains(root), "this call is not known");
            None
        }
    };
    Ok(found)
}

/// Splits the arguments of a call at its commas, outside of strings and file names. Returns also
/// the result.
fn words(rest: &str) -> (Vec<String>, &str) {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quoted, mut escaped, mut depth) = (false, false, 0);
    for (at, letter) in rest.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '<' | '{' | '[' | '(' if !quoted => depth += 1,
            ')' if !quoted && depth == 0 => {
                words.push(word.trim().to_owned());
                let result = rest.get(at + 1..).unwrap_or_default();
                return (words, result.trim_start().trim_start_matches('=').trim_start());
            }
            '>' | '}' | ']' | ')' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                words.push(word.trim().to_owned());
                word.clear();
                continue;
            }
            _ => {}
        }
        word.push(letter);
    }
    (words, "")
}

/// Returns the path of a descriptor like `3</etc>`.
fn descriptor(word: &str) -> String {
    let inner = word.split_once('<').map_or("", |(_, rest)| rest);
    inner.rsplit_once('>').map_or("", |(path, _)| path).to_owned()
}

fn join(folder: &str, name: &str) -> String {
    if name.starts_with('/') { name.to_owned() } else { format!("{folder}/{name}") }
}

fn text(word: &str) -> String {
    String::from_utf8_lossy(&bytes(word)).into_owned()
}

/// Returns the bytes of a quoted string.
fn bytes(word: &str) -> Vec<u8> {
    let word = word.trim_end_matches("...");
    let word = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let [first, after @ ..] = rest {
        if *first != b'\\' {
            bytes.push(*first);
            rest = after;
            continue;
        }
        let (byte, used) = escape(after);
        bytes.push(byte);
        rest = after.get(used..).unwrap_or_default();
    }
    bytes
}

/// Returns the byte of an escape sequence without its backslash, and the length of the sequence.
fn escape(after: &[u8]) -> (u8, usize) {
    let number = |range: std::ops::Range<usize>, radix| {
        let digits = after.get(range).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| u8::from_str_radix(digits, radix).ok()).unwrap_or(b'?')
    };
    match after.first() {
        Some(b'n') => (b'\n', 1),
        Some(b't') => (b'\t', 1),
        Some(b'r') => (b'\r', 1),
        Some(b'v') => (0x0b, 1),
        Some(b'f') => (0x0c, 1),
        Some(b'x') => (number(1..3, 16), 3),
        Some(digit) if digit.is_ascii_digit() => {
            let count = after.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
            (number(0..count, 8), count)
        }
        Some(byte) => (*byte, 1),
        None => (b'\\', 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_below_the_root_are_read() {
        let text = "\
1 openat(AT_FDCWD</w>, \"/lib/x.so\", O_RDONLY|O_CLOEXEC) = 3</lib/x.so>
1 openat(5</t/etc>, \".a.mco-new\", O_WRONLY|O_CREAT|O_EXCL, 0600) = 7</t/etc/.a.mco-new>
1 write(7</t/etc/.a.mco-new>, \"one, \\\"two\\\"\\n\\0\", 12) = 12
2 write(7</t/etc/.a.mco-new>, \"\\x1f\\x8b\", 2 <unfinished ...>
1 fchmod(7</t/etc/.a.mco-new>, 0644) = 0
2 <... write resumed>) = 2
1 fsync(7</t/etc/.a.mco-new>) = 0
1 renameat(5</t/etc>, \".a.mco-new\", 5</t/etc>, \"a\") = 0
1 unlinkat(5</t/etc>, \"b\", 0) = -1 ENOENT (No such file or directory)
1 symlinkat(\"../a\", 5</t/etc>, \"l\") = 0
1 mkdirat(5</t/etc>, \"d\", 0777) = 0
1 write(2</dev/null>, \"x\", 1) = 1
1 +++ exited with 0 +++
";
        let path = || "/etc/.a.mco-new".to_owned();
        let want = [
            Call::Create(path()),
            Call::Write(path(), b"one, \"two\"\n\0".to_vec()),
            Call::Mode(path(), 0o644),
            Call::Write(path(), vec![0x1f, 0x8b]),
            Call::Sync(path()),
            Call::Rename(path(), "/etc/a".to_owned()),
            Call::Link("../a".to_owned(), "/etc/l".to_owned()),
            Call::Directory("/etc/d".to_owned()),
        ];
        assert_eq!(calls(text, "/t").unwrap(), want);
        assert!(calls("1 linkat(5</t/a>, \"b\", 5</t/a>, \"c\", 0) = 0\n", "/t").is_err());
    }
}
