//! Storage of cached objects: plain or compressed.
//!
//! A MachineConfigNode is a list of conditions, each of four short texts, most of which are the same
//! for every node: it takes 5 kB of memory as an object and a tenth of that compressed. There is one
//! for each node, and it is read only when something happens to that node.

use std::{
    fmt,
    io::Read as _,
    sync::{Arc, Mutex, PoisonError},
};

use flate2::{Compress, Compression, FlushCompress, Status, read::DeflateDecoder};

use crate::Object;

/// A stored object.
pub(super) enum Stored<K> {
    /// The object itself.
    Plain(Arc<K>),
    /// Compressed JSON, and the function that decodes it.
    Compressed(Box<[u8]>, fn(&[u8]) -> Arc<K>),
}

impl<K> Stored<K> {
    pub(super) fn load(&self) -> Arc<K> {
        match self {
            Self::Plain(object) => object.clone(),
            Self::Compressed(bytes, decode) => decode(bytes),
        }
    }
}

/// The storage format of a cache.
pub(super) enum Storage<K> {
    /// Objects are stored as they are.
    Plain,
    /// Objects are compressed.
    Compressed(Compressor, fn(&Compressor, &K) -> Option<Stored<K>>),
}

impl<K> fmt::Debug for Storage<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Compressed(..) => "Compressed",
        })
    }
}

impl<K: Object> Storage<K> {
    /// Returns a storage that compresses.
    pub(super) fn compressed() -> Self {
        let compressor = Compressor(Mutex::new(Compress::new(Compression::fast(), false)));
        Self::Compressed(compressor, |compressor, object| {
            Some(Stored::Compressed(compressor.compress(object)?, decompress))
        })
    }
}

impl<K> Storage<K> {
    pub(super) fn store(&self, object: &Arc<K>) -> Stored<K> {
        let compressed = match self {
            Self::Plain => None,
            Self::Compressed(compressor, compress) => compress(compressor, object),
        };
        compressed.unwrap_or_else(|| Stored::Plain(object.clone()))
    }
}

/// A compressor. Its working memory is a quarter of a megabyte, so it is reused.
pub(super) struct Compressor(Mutex<Compress>);

impl Compressor {
    /// Compresses an object; `None` if it cannot be encoded or does not become smaller.
    fn compress<K: Object>(&self, object: &K) -> Option<Box<[u8]>> {
        let text = object.encode().ok()?;
        let mut packed = Vec::with_capacity(text.len());
        let mut compress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        compress.reset();
        let status = compress.compress_vec(&text, &mut packed, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then(|| packed.into_boxed_slice())
    }
}

fn decompress<K: Object>(packed: &[u8]) -> Arc<K> {
    let mut text = String::with_capacity(8 * packed.len());
    DeflateDecoder::new(packed).read_to_string(&mut text).expect("compressed by this process");
    Arc::new(K::decode(&text).expect("encoded from an object of this kind"))
}
