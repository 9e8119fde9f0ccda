//! Buffers for samples in shared memory, which peers on this host map.

use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use zenoh::shm::{
    GarbageCollect, PosixShmProviderBackend, ShmProvider, ShmProviderBuilder, ZAllocError,
    ZLayoutAllocError, ZShmMut,
};
use zenoh::Wait;

/// Peers free a buffer without a signal. The library's own policy that waits looks as often.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

extern "C" {
    fn flock(descriptor: c_int, operation: c_int) -> c_int;
}

const LOCK_EX: c_int = 2;
const LOCK_NB: c_int = 4;
const LOCK_UN: c_int = 8;

static FOLDER: LazyLock<Option<File>> = LazyLock::new(|| File::open("/dev/shm").ok());

/// Keeps our other processes from creating and removing files in shared memory, until it is dropped.
///
/// The library removes files that no process has locked when a process starts and ends, and locks a file only after it
/// has created it. Without the file, no peer receives the samples in it.
pub struct FolderLock;

impl FolderLock {
    /// Waits for other processes, and then goes on all the same.
    pub fn new(longest_wait: Duration) -> Self {
        let begin = Instant::now();
        while !lock_folder(LOCK_EX | LOCK_NB) && begin.elapsed() < longest_wait {
            std::thread::sleep(LOOK_AGAIN);
        }
        FolderLock
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        lock_folder(LOCK_UN);
    }
}

fn lock_folder(operation: c_int) -> bool {
    let Some(folder) = FOLDER.as_ref() else {
        return true; // then the library reports that there is no shared memory
    };
    // Safe: flock reads no memory.
    unsafe { flock(folder.as_raw_fd(), operation) == 0 }
}

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
