//! File modes in the notation of the reference.

use std::fmt;

/// The type and permissions of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u32);

/// File types and special bits: letter, and bit in the mode of the Go runtime.
const KINDS: [(char, u32); 8] = [
    ('d', 1 << 31),
    ('L', 1 << 27),
    ('D', 1 << 26),
    ('p', 1 << 25),
    ('S', 1 << 24),
    ('u', 1 << 23),
    ('g', 1 << 22),
    ('c', 1 << 21),
];
const STICKY: (char, u32) = ('t', 1 << 20);

impl Mode {
    /// Returns the mode of a regular file with these permissions.
    #[must_use]
    pub const fn file(permissions: u32) -> Self {
        Self(permissions)
    }

    /// Returns the permissions of a regular file without special bits; `None` for anything else.
    #[must_use]
    pub const fn permissions(self) -> Option<u32> {
        if self.0 & !0o777 == 0 { Some(self.0) } else { None }
    }

    /// Converts a mode of the kernel (`st_mode`).
    #[must_use]
    pub const fn from_kernel(mode: u32) -> Self {
        let kind = match mode & 0o170_000 {
            0o040_000 => 1 << 31,
            0o120_000 => 1 << 27,
            0o060_000 => 1 << 26,
            0o020_000 => (1 << 26) | (1 << 21),
            0o010_000 => 1 << 25,
            0o140_000 => 1 << 24,
            _ => 0,
        };
        let mut bits = kind | (mode & 0o777);
        if mode & 0o4000 != 0 {
            bits |= 1 << 23;
        }
        if mode & 0o2000 != 0 {
            bits |= 1 << 22;
        }
        if mode & 0o1000 != 0 {
            bits |= STICKY.1;
        }
        Self(bits)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters: String = KINDS
            .into_iter()
            .chain([STICKY])
            .filter(|(_, bit)| self.0 & bit != 0)
            .map(|(letter, _)| letter)
            .collect();
        if letters.is_empty() {
            letters.push('-');
        }
        for (place, letter) in "rwxrwxrwx".chars().enumerate() {
            let is_set = self.0 & (0o400 >> place) != 0;
            letters.push(if is_set { letter } else { '-' });
        }
        // Compat: a mode of zero is printed as one zero, not two.
        let octal = if self.0 == 0 { String::new() } else { format!("{:o}", self.0) };
        write!(f, "{letters}/{}/0{octal}", self.0)
    }
}
