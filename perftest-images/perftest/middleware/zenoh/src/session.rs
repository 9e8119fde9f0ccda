//! Sessions, with their subscribers and the presence of peers.

use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::time::Duration;

use zenoh::handlers::{Callback, FifoChannel, FifoChannelHandler, IntoHandler};
use zenoh::sample::{Sample, SampleKind};
use zenoh::Wait;

use crate::configuration::combined;
use crate::memory::{FolderLock, Pool};
use crate::{text, value_or, Context};

type Bytes = unsafe extern "C" fn(*mut c_void, *const u8, usize, bool);
type Presence = unsafe extern "C" fn(*mut c_void, bool, u32, u32);

/// How long a process waits for others that start or end. The program ends 2 s after it began to.
const BEFORE_START: Duration = Duration::from_secs(10);
const BEFORE_END: Duration = Duration::from_secs(1);

pub struct Session {
    pub session: zenoh::Session,
    /// Buffers in shared memory, if samples are to use it.
    pub pool: Option<Arc<Pool>>,
    queue: Option<Queue>,
}

/// The samples that wait to be taken.
struct Queue {
    callback: Callback<Sample>,
    samples: FifoChannelHandler<Sample>,
    /// Taken from the queue while waiting for it.
    first: Option<Sample>,
}

impl Queue {
    fn new(capacity: usize) -> Self {
        let (callback, samples) = FifoChannel::new(capacity).into_handler();
        Queue {
            callback,
            samples,
            first: None,
        }
    }

    fn wait(&mut self, timeout: Duration) -> bool {
        if self.first.is_none() {
            self.first = self.samples.recv_timeout(timeout).ok().flatten();
        }
        self.first.is_some()
    }

    fn next(&mut self) -> Option<Sample> {
        self.first
            .take()
            .or_else(|| self.samples.try_recv().ok().flatten())
    }
}

/// Passes the payload of a sample, which is copied only if it arrived in several parts.
unsafe fn pass(sample: &Sample, callback: Bytes, context: *mut c_void) {
    let payload = sample.payload();
    let data = payload.to_bytes();
    callback(
        context,
        data.as_ptr(),
        data.len(),
        payload.as_shm().is_some(),
    );
}

fn open(config: zenoh::Config, shared_bytes: usize) -> Result<Session, String> {
    let _lock = (shared_bytes > 0).then(|| FolderLock::new(BEFORE_START));
    let pool = match shared_bytes {
        0 => None,
        bytes => Some(Arc::new(Pool::new(bytes)?)),
    };
    let session = zenoh::open(config).wait();
    Ok(Session {
        session: session.map_err(|error| error.to_string())?,
        pool,
        queue: None,
    })
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_open(
    configuration: *const c_char,
    own: *const c_char,
    shared_bytes: usize,
    error: *mut *mut c_char,
) -> *mut Session {
    let session =
        combined(&text(configuration), &text(own)).and_then(|config| open(config, shared_bytes));
    value_or(session, error).map_or(std::ptr::null_mut(), |session| {
        Box::into_raw(Box::new(session))
    })
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_close(session: *mut Session) {
    let mut session = Box::from_raw(session);
    if session.pool.is_some() {
        // The library removes files also after this function: the lock ends with the process.
        std::mem::forget(FolderLock::new(BEFORE_END));
    }
    // A callback that waits for room in the queue ends when the queue has no reader.
    session.queue = None;
    let _ = session.session.close().wait_callbacks().wait();
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_subscribe(
    session: &Session,
    key: *const c_char,
    callback: Bytes,
    context: *mut c_void,
    error: *mut *mut c_char,
) -> bool {
    let context = Context(context);
    let declared = session
        .session
        .declare_subscriber(text(key).into_owned())
        .callback(move |sample| {
            let context = context;
            pass(&sample, callback, context.0)
        })
        .background()
        .wait();
    value_or(declared, error).is_some()
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_subscribe_queue(
    session: &mut Session,
    key: *const c_char,
    capacity: usize,
    error: *mut *mut c_char,
) -> bool {
    let callback = session
        .queue
        .get_or_insert_with(|| Queue::new(capacity))
        .callback
        .clone();
    let declared = session
        .session
        .declare_subscriber(text(key).into_owned())
        .with(callback)
        .background()
        .wait();
    value_or(declared, error).is_some()
}

#[no_mangle]
pub extern "C" fn k8sdds_zenoh_wait(session: &mut Session, timeout_ns: i64) -> bool {
    let timeout = Duration::from_nanos(timeout_ns.max(0) as u64);
    session
        .queue
        .as_mut()
        .is_some_and(|queue| queue.wait(timeout))
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_take(
    session: &mut Session,
    most: u32,
    callback: Bytes,
    context: *mut c_void,
) -> u32 {
    let mut taken = 0;
    if let Some(queue) = session.queue.as_mut() {
        while taken < most {
            let Some(sample) = queue.next() else { break };
            pass(&sample, callback, context);
            taken += 1;
        }
    }
    taken
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_appear(
    session: &Session,
    key: *const c_char,
    number: u32,
    incarnation: u32,
    error: *mut *mut c_char,
) -> bool {
    let name = format!("{}.{}.{}", number, incarnation, session.session.zid());
    let key = format!("{}/{}", text(key), name);
    // The session ends the declaration.
    value_or(
        session
            .session
            .liveliness()
            .declare_token(key)
            .wait()
            .map(std::mem::forget),
        error,
    )
    .is_some()
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_watch(
    session: &Session,
    key: *const c_char,
    callback: Presence,
    context: *mut c_void,
    error: *mut *mut c_char,
) -> bool {
    let context = Context(context);
    let declared = session
        .session
        .liveliness()
        .declare_subscriber(format!("{}/*", text(key)))
        .history(true)
        .callback(move |token| {
            let context = context;
            let name = token.key_expr().as_str().rsplit('/').next().unwrap_or("");
            let mut parts = name.split('.').map(|part| part.parse().unwrap_or(u32::MAX));
            let (number, incarnation) = (parts.next(), parts.next());
            callback(
                context.0,
                token.kind() == SampleKind::Put,
                number.unwrap_or(u32::MAX),
                incarnation.unwrap_or(u32::MAX),
            )
        })
        .background()
        .wait();
    value_or(declared, error).is_some()
}
