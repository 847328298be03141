//! Syntax check of unit files, with the rules of go-systemd.

/// Facts about a unit file that the rules need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sections {
    /// True if the section `Install` has an option.
    pub(crate) install: bool,
}

/// Parses a unit file; the error describes the fault.
pub(crate) fn parse(text: &str) -> Result<Sections, String> {
    let mut lexer = Lexer { text, at: 0, loaded: 0, at_end: false, sections: Sections::default() };
    let mut state = LexerState::BeforeSection;
    loop {
        lexer.refuse_long_line()?;
        match lexer.run(state)? {
            Some(next) => state = next,
            None => return Ok(lexer.sections),
        }
    }
}

/// Maximum length of a line in systemd.
const LINE_MAX: usize = 2048;

/// Size of the read buffer of the reference's parser.
const BUFFER: usize = 4096;

/// Next token of the lexer.
#[derive(Clone, Copy)]
enum LexerState {
    BeforeSection,
    SectionName,
    SectionSuffix { install: bool },
    SectionOrOption { install: bool },
    Comment { inside: Option<bool> },
    OptionName { install: bool },
    OptionValue { install: bool },
}

/// A lexer of unit files.
///
/// Compat: lines that are too long are detected only between tokens, and only if the reference's
/// buffer holds enough of them. `loaded` tracks the end of that buffer, so that both accept the
/// same files.
struct Lexer<'a> {
    text: &'a str,
    at: usize,
    loaded: usize,
    at_end: bool,
    sections: Sections,
}

impl<'a> Lexer<'a> {
    fn refuse_long_line(&self) -> Result<(), String> {
        if self.loaded - self.at < LINE_MAX {
            return Ok(());
        }
        let ahead = self.text.as_bytes().get(self.at..self.at + LINE_MAX).unwrap_or_default();
        if ahead.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
            return Ok(());
        }
        Err(format!("line too long (max {LINE_MAX} bytes)"))
    }

    fn run(&mut self, state: LexerState) -> Result<Option<LexerState>, String> {
        let next = match state {
            LexerState::BeforeSection => match self.character() {
                None => return Ok(None),
                Some('[') => LexerState::SectionName,
                Some('#' | ';') => LexerState::Comment { inside: None },
                Some(_) => LexerState::BeforeSection,
            },
            LexerState::SectionName => {
                let name = self.until(b']').strip_suffix(']');
                let name = name.ok_or("unable to find end of section")?;
                LexerState::SectionSuffix { install: name == "Install" }
            }
            LexerState::SectionSuffix { install } => {
                let garbage = self.line().trim();
                if !garbage.is_empty() {
                    return Err(format!("found garbage after section name : {garbage:?}"));
                }
                LexerState::SectionOrOption { install }
            }
            LexerState::SectionOrOption { install } => {
                let start = self.at;
                match self.character() {
                    None => return Ok(None),
                    Some('[') => LexerState::SectionName,
                    Some('#' | ';') => LexerState::Comment { inside: Some(install) },
                    Some(space) if space.is_whitespace() => state,
                    Some(_) => {
                        self.at = start;
                        LexerState::OptionName { install }
                    }
                }
            }
            LexerState::Comment { inside } => {
                let goes_on = |line: &str| line.strip_suffix(' ').unwrap_or(line).ends_with('\\');
                while goes_on(self.line()) {}
                inside.map_or(LexerState::BeforeSection, |install| LexerState::SectionOrOption {
                    install,
                })
            }
            LexerState::OptionName { install } => loop {
                match self.character() {
                    None => return Err("EOF".to_owned()),
                    Some('\n' | '\r') => {
                        let message = "unexpected newline encountered while parsing option name";
                        return Err(message.to_owned());
                    }
                    Some('=') => break LexerState::OptionValue { install },
                    Some(_) => {}
                }
            },
            LexerState::OptionValue { install } => {
                if self.line().ends_with('\\') {
                    return Ok(Some(state));
                }
                self.sections.install |= install;
                LexerState::SectionOrOption { install }
            }
        };
        Ok(Some(next))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Fills the rest of the buffer.
    fn fill(&mut self) {
        let room = BUFFER - (self.loaded - self.at);
        let more = room.min(self.text.len() - self.loaded);
        self.at_end = more == 0;
        self.loaded += more;
    }

    fn character(&mut self) -> Option<char> {
        let character = self.rest().chars().next();
        let length = character.map_or(1, char::len_utf8);
        while self.loaded - self.at < length && !self.at_end {
            self.fill();
        }
        self.at_end = false;
        self.at += character.map_or(0, char::len_utf8);
        character
    }

    /// Returns the text up to and including `end`, or all of the rest.
    fn until(&mut self, end: u8) -> &'a str {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| byte == end).map(|at| at + 1);
        let stop = self.at + length.unwrap_or(rest.len());
        loop {
            if length.is_some() && stop <= self.loaded {
                break;
            }
            if self.loaded - self.at >= BUFFER {
                self.at = self.loaded;
            }
            self.fill();
            if self.at_end {
                break;
            }
        }
        self.at_end = false;
        self.at = stop;
        rest.get(..length.unwrap_or(rest.len())).unwrap_or_default()
    }

    fn line(&mut self) -> &'a str {
        let line = self.until(b'\n');
        let line = line.strip_suffix('\r').unwrap_or(line);
        line.strip_suffix('\n').unwrap_or(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_files_are_parsed_as_in_go_systemd() {
        let long = |length: usize| "x".repeat(length);
        let too_long = "line too long (max 2048 bytes)";
        let newline = "unexpected newline encountered while parsing option name";
        let cases: [(&str, Result<bool, &str>); 19] = [
            ("", Ok(false)),
            ("anything before a section", Ok(false)),
            ("[Unit]\nA=b\n", Ok(false)),
            ("[Install]\n", Ok(false)),
            ("[Install]\nWantedBy=a\n", Ok(true)),
            ("[Install]\r\nWantedBy=a\r\n", Ok(true)),
            ("[Unit]\nA=b \\\n[Install]\nC=d\n", Ok(false)),
            ("# [Broken\n[Install]\n; x \\\ny\nA=b", Ok(true)),
            ("[Unit", Err("unable to find end of section")),
            ("[Unit] x\n", Err("found garbage after section name : \"x\"")),
            ("[Unit]\nA\n", Err(newline)),
            ("[Unit]\nA", Err("EOF")),
            ("[Unit]\n=b\n", Ok(false)),
            ("[Unit]\n\u{a0}A=b\n", Ok(false)),
            (&format!("[Unit]\nA={}\n", long(2045)), Ok(false)),
            (&format!("[Unit]\nA={}\n", long(2046)), Err(too_long)),
            (&format!("[Unit]\n# {}\n", long(2100)), Err(too_long)),
            // The end of the buffer hides the rest of this line until after the length check.
            (&format!("[Unit]\nA={0}\nB=b{0}\nC={1}", long(1200), long(2100)), Ok(false)),
            (&format!("[Unit]\nA=\\\n{}\n", long(3)), Ok(false)),
        ];
        for (text, expected) in cases {
            let found = parse(text).map(|sections| sections.install);
            assert_eq!(found, expected.map_err(str::to_owned), "{text:?}");
        }
    }
}
