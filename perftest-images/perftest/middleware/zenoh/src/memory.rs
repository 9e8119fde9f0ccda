//! Buffers for samples in shared memory, which peers on this host map.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use zenoh::shm::{
    GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder, ZAllocError,
    ZLayoutAllocError, ZShmMut,
};
use zenoh::Wait;

/// Peers free a buffer without a signal. The library's own policy that waits looks as often.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

pub struct Pool {
    provider: ShmProvider<PosixShmProviderBackend>,
    files: Vec<PathBuf>,
}

impl Pool {
    pub fn new(bytes: usize) -> Result<Self, String> {
        let problem = |error: String| format!("{bytes} bytes in /dev/shm: {error}");
        let provider = ShmProviderBuilder::default_backend(bytes)
            .wait()
            .map_err(|error| problem(error.to_string()))?;
        // With the first buffer, the library creates the file that states which buffers are used.
        let first = provider.alloc(1usize).wait();
        first.map_err(|error| problem(error.to_string()))?;
        Ok(Pool {
            provider,
            files: opened_files(),
        })
    }

    /// Returns a buffer, or None if none was free within a time.
    pub fn buffer(
        &self,
        length: usize,
        longest_wait: Duration,
    ) -> Result<Option<ZShmMut>, ZLayoutAllocError> {
        let begin = Instant::now();
        loop {
            let buffer = self.provider.alloc(length);
            match buffer.with_policy::<GarbageCollect>().wait() {
                Err(ZLayoutAllocError::Alloc(ZAllocError::OutOfMemory)) => {
                    if begin.elapsed() >= longest_wait {
                        return Ok(None);
                    }
                    std::thread::sleep(LOOK_AGAIN);
                }
                other => return other.map(Some),
            }
        }
    }
}

impl Drop for Pool {
    /// Removes the files, which the library leaves while a peer maps them, or if the program ends without destructors.
    fn drop(&mut self) {
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Returns the files of the library in shared memory that this process has opened, before it has peers.
fn opened_files() -> Vec<PathBuf> {
    let descriptors = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    descriptors
        .filter_map(|descriptor| std::fs::read_link(descriptor.ok()?.path()).ok())
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "zenoh")
        })
        .collect()
}
