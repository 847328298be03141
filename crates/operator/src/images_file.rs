//! The file `images.json`, which is mounted into the pod of the operator.

use std::{fmt, sync::Arc};

/// Function that reads a file. The error is a description.
type Read = dyn Fn() -> Result<String, String> + Send + Sync;

/// A file with the images of the release. It is read in each reconcile: a mounted file changes while
/// the operator runs.
#[derive(Clone)]
pub struct ImagesFile(Arc<Read>);

impl ImagesFile {
    /// Returns the file that `read` reads.
    pub fn new(read: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub(crate) fn read(&self) -> Result<String, String> {
        (self.0)()
    }
}

impl fmt::Debug for ImagesFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImagesFile")
    }
}
