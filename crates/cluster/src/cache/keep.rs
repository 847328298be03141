//! How a cache keeps its objects: as they are, or in few bytes.
//!
//! A report on a node is a list of conditions, each of four short texts, and most are the same for every
//! node: as an object it takes 5 kB of memory, packed a tenth. Of such kinds there is one object for
//! each node, and it is looked at only when something happens to that node.

use std::{
    fmt,
    io::Read as _,
    sync::{Arc, Mutex, PoisonError},
};

use flate2::{Compress, Compression, FlushCompress, Status, read::DeflateDecoder};
use serde::{Serialize, de::DeserializeOwned};

/// One object, as it is kept.
pub(super) enum Kept<K> {
    /// As it is.
    Open(Arc<K>),
    /// As packed text, and who can open it.
    Packed(Box<[u8]>, fn(&[u8]) -> Arc<K>),
}

impl<K> Kept<K> {
    pub(super) fn open(&self) -> Arc<K> {
        match self {
            Self::Open(object) => object.clone(),
            Self::Packed(bytes, open) => open(bytes),
        }
    }
}

/// Makes the objects of one kind into what is kept of them.
pub(super) enum Keeper<K> {
    /// Leaves them as they are.
    Open,
    /// Packs them.
    Packer(Packer, fn(&Packer, &K) -> Option<Kept<K>>),
}

impl<K> fmt::Debug for Keeper<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Packer(..) => "Packer",
        })
    }
}

impl<K: Serialize + DeserializeOwned> Keeper<K> {
    /// One that packs.
    pub(super) fn packer() -> Self {
        let packer = Packer(Mutex::new(Compress::new(Compression::fast(), false)));
        Self::Packer(packer, |packer, object| Some(Kept::Packed(packer.pack(object)?, unpack)))
    }
}

impl<K> Keeper<K> {
    pub(super) fn keep(&self, object: &Arc<K>) -> Kept<K> {
        let packed = match self {
            Self::Open => None,
            Self::Packer(packer, pack) => pack(packer, object),
        };
        packed.unwrap_or_else(|| Kept::Open(object.clone()))
    }
}

/// Its working memory is a quarter of a megabyte, so it is kept.
pub(super) struct Packer(Mutex<Compress>);

impl Packer {
    /// None of an object that cannot be written as text or does not become smaller.
    fn pack<K: Serialize>(&self, object: &K) -> Option<Box<[u8]>> {
        let text = serde_json::to_vec(object).ok()?;
        let mut packed = Vec::with_capacity(text.len());
        let mut compress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        compress.reset();
        let status = compress.compress_vec(&text, &mut packed, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then(|| packed.into_boxed_slice())
    }
}

fn unpack<K: DeserializeOwned>(packed: &[u8]) -> Arc<K> {
    let mut text = Vec::with_capacity(8 * packed.len());
    DeflateDecoder::new(packed).read_to_end(&mut text).expect("it was packed here");
    Arc::new(serde_json::from_slice(&text).expect("it was an object of this kind"))
}
