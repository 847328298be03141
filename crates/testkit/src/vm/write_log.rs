//! The record of a disk's writes, and the states that a power cut can leave on the disk.
//!
//! A disk with a volatile cache guarantees a write only after the next flush. Until then the write
//! may be on the disk or not, independently of the writes before and after it.

use std::{
    fs::{self, File},
    ops::Range,
    os::unix::fs::FileExt as _,
    path::Path,
};

use anyhow::Context as _;

/// The first number of a record, as dm-log-writes defines it.
const MAGIC: u64 = 0x006a_7366_7773_6872;
/// Size of the header and of every entry's head.
const SECTOR: usize = 512;
/// A disk writes blocks of this size as a whole.
const BLOCK: usize = 4096;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// An entry of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Bytes at an offset of the disk.
    Data {
        /// Offset in bytes.
        offset: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// All writes before are durable.
    Flush,
}

/// The record of a disk's writes.
#[derive(Clone, Debug)]
pub struct WriteLog {
    /// Writes in their order.
    pub writes: Vec<Write>,
    /// Offset of each entry's end in the file.
    ends: Vec<u64>,
}

/// A state that a power cut can leave: a prefix of the writes, and some blocks of later writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutState {
    /// Number of writes that are durable.
    pub durable: usize,
    /// Blocks that were written but not flushed: number of the write and range of its bytes.
    pub kept: Vec<(usize, Range<usize>)>,
}

impl WriteLog {
    /// Reads the record that QEMU wrote.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
        Self::parse(&bytes)
    }

    /// Parses a record. An entry that was not written completely ends it.
    pub fn parse(bytes: &[u8]) -> anyhow::Result<Self> {
        anyhow::ensure!(number(bytes, 0) == Some(MAGIC), "this is no record of writes");
        let (mut writes, mut ends) = (Vec::new(), Vec::new());
        let mut at = SECTOR;
        while let (Some(sector), Some(sectors), Some(flags)) =
            (number(bytes, at), number(bytes, at + 8), number(bytes, at + 16))
        {
            at += SECTOR;
            let size = usize::try_from(sectors).context("a write is too long")? * SECTOR;
            if flags & FLUSH != 0 {
                writes.push(Write::Flush);
                ends.push(at as u64);
            }
            anyhow::ensure!(flags & DISCARD == 0, "the machine discarded blocks");
            if size > 0 {
                let Some(data) = bytes.get(at..at + size) else { break };
                at += size;
                writes.push(Write::Data { offset: sector * SECTOR as u64, bytes: data.to_owned() });
                ends.push(at as u64);
            }
        }
        Ok(Self { writes, ends })
    }

    /// Returns the number of writes in the first `size` bytes of the record.
    #[must_use]
    pub fn writes_within(&self, size: u64) -> usize {
        self.ends.iter().filter(|&&end| end <= size).count()
    }

    /// Returns states that a power cut can leave: after every flush, and at least `count` in all
    /// with random blocks of the writes that follow it. Sorted by the number of durable writes.
    #[must_use]
    pub fn cut_states(&self, count: usize, random: &mut fastrand::Rng) -> Vec<CutState> {
        let flushes = self.writes.iter().enumerate().filter(|(_, it)| **it == Write::Flush);
        let starts: Vec<usize> =
            std::iter::once(0).chain(flushes.map(|(number, _)| number + 1)).collect();
        let mut states: Vec<CutState> =
            starts.iter().map(|&durable| CutState { durable, kept: Vec::new() }).collect();
        let windows = starts.iter().map(|&start| (start, self.blocks_after(start)));
        let open: Vec<_> = windows.filter(|(_, blocks)| !blocks.is_empty()).collect();
        while states.len() < count && !open.is_empty() {
            for (durable, blocks) in &open {
                let share = random.f32();
                let kept = blocks.iter().filter(|_| random.f32() < share).cloned().collect();
                states.push(CutState { durable: *durable, kept });
            }
        }
        states.sort_by_key(|state| state.durable);
        states
    }

    /// Returns the blocks that are written between a write and the next flush.
    fn blocks_after(&self, start: usize) -> Vec<(usize, Range<usize>)> {
        let window = self.writes.iter().enumerate().skip(start);
        let window = window.take_while(|(_, write)| **write != Write::Flush);
        window
            .flat_map(|(number, write)| {
                let size = if let Write::Data { bytes, .. } = write { bytes.len() } else { 0 };
                let blocks = (0..size).step_by(BLOCK);
                blocks.map(move |at| (number, at..(at + BLOCK).min(size)))
            })
            .collect()
    }

    /// Repeats a range of the writes on an image of the disk.
    pub fn replay(&self, image: &File, range: Range<usize>) -> anyhow::Result<()> {
        for write in self.writes.get(range).context("the record is shorter")? {
            if let Write::Data { offset, bytes } = write {
                image.write_all_at(bytes, *offset).context("failed to write to a disk")?;
            }
        }
        Ok(())
    }

    /// Writes the blocks of a state beyond its durable writes to an image of a part of the disk.
    pub fn keep(&self, image: &File, part: &Range<u64>, state: &CutState) -> anyhow::Result<()> {
        for (number, range) in &state.kept {
            let Some(Write::Data { offset, bytes }) = self.writes.get(*number) else { continue };
            let offset = offset + range.start as u64;
            if part.contains(&offset) {
                let block = bytes.get(range.clone()).context("the write is shorter")?;
                let written = image.write_all_at(block, offset - part.start);
                written.context("failed to write to a disk")?;
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(entries: &[(u64, &[u8], u64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.resize(SECTOR, 0);
        for (sector, data, flags) in entries {
            let start = bytes.len();
            let sectors = (data.len() / SECTOR) as u64;
            for number in [*sector, sectors, *flags, 0] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.resize(start + SECTOR, 0);
            bytes.extend(*data);
        }
        bytes
    }

    #[test]
    fn a_cut_loses_any_blocks_after_the_last_flush_and_none_before() {
        let (first, second) = ([1; BLOCK], [2; 2 * BLOCK]);
        let bytes = record(&[(0, &first, 0), (0, &[], FLUSH), (8, &second, 0), (9, &[7; 10], 0)]);
        let log = WriteLog::parse(&bytes).unwrap();
        assert_eq!(log.writes.len(), 3, "an entry that is cut off does not count");
        let states = log.cut_states(64, &mut fastrand::Rng::with_seed(1));
        assert!(states.len() >= 64);
        let after: Vec<_> = states.iter().filter(|state| state.durable == 2).collect();
        for kept in [vec![], vec![(2, 0..BLOCK)], vec![(2, BLOCK..2 * BLOCK)]] {
            assert!(after.iter().any(|state| state.kept == kept), "{kept:?}");
        }
        assert!(states.iter().all(|state| state.durable == 0 || state.durable == 2));
        let image = tempfile::tempfile().unwrap();
        image.set_len(4 * BLOCK as u64).unwrap();
        let state = CutState { durable: 2, kept: vec![(2, BLOCK..2 * BLOCK)] };
        log.replay(&image, 0..state.durable).unwrap();
        log.keep(&image, &(0..u64::MAX), &state).unwrap();
        let mut found = [9; 4 * BLOCK];
        image.read_exact_at(&mut found, 0).unwrap();
        let block = |number: usize| found[number * BLOCK];
        assert_eq!([block(0), block(1), block(2), block(3)], [1, 0, 2, 0]);
    }
}
