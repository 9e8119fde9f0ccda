//! Publishers of samples that consist of a head and a payload.

use std::ffi::c_char;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use zenoh::bytes::ZBytes;
use zenoh::qos::{CongestionControl, Priority, Reliability};
use zenoh::sample::Locality;
use zenoh::Wait;

use crate::memory::Pool;
use crate::session::Session;
use crate::{text, value_or};

#[repr(C)]
pub struct Qos {
    reliable: bool,
    /// DROP or BLOCK.
    congestion_control: i32,
    priority: i32,
}

const DROP: i32 = 0;
const BLOCK: i32 = 1;

/// Where a sample is.
const ONE_PAYLOAD: i32 = 1;
const SHARED_MEMORY: i32 = 2;

/// What became of a sample.
const OK: i32 = 0;
const BLOCKED: i32 = 1;
const FAILED: i32 = 2;

/// How long a publisher that drops samples waits for room: as long as the library does by default.
const BEFORE_DROP: Duration = Duration::from_millis(1);

pub struct Publisher {
    publisher: zenoh::pubsub::Publisher<'static>,
    /// The payload of all samples, if they share it.
    payload: Option<ZBytes>,
    pool: Option<Arc<Pool>>,
}

impl Publisher {
    /// Returns a sample in a buffer of its own, as an application has it after serialization.
    fn copied(head: &[u8], payload: &[u8]) -> ZBytes {
        let mut sample = Vec::with_capacity(head.len() + payload.len());
        sample.extend_from_slice(head);
        sample.extend_from_slice(payload);
        sample.into()
    }

    fn shared(&mut self, head: &[u8], payload: &[u8]) -> ZBytes {
        let payload = self
            .payload
            .get_or_insert_with(|| payload.to_vec().into())
            .clone();
        let mut sample = ZBytes::writer();
        // Writing to memory does not fail.
        let _ = sample.write_all(head);
        sample.append(payload);
        sample.finish()
    }

    fn blocks(&self) -> bool {
        self.publisher.congestion_control() == CongestionControl::Block
    }

    /// Returns a sample in shared memory, or what became of it: it is never sent in another way.
    fn in_memory(
        &self,
        head: &[u8],
        payload: &[u8],
        longest_wait: Duration,
    ) -> Result<ZBytes, i32> {
        let pool = self.pool.as_ref().ok_or(FAILED)?;
        let (longest_wait, otherwise) = if self.blocks() {
            (longest_wait, BLOCKED)
        } else {
            (BEFORE_DROP, OK)
        };
        let free = pool.buffer(head.len() + payload.len(), longest_wait);
        let mut sample = free.map_err(|_| FAILED)?.ok_or(otherwise)?;
        sample[..head.len()].copy_from_slice(head);
        sample[head.len()..].copy_from_slice(payload);
        Ok(sample.into())
    }
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_publisher(
    session: &Session,
    key: *const c_char,
    qos: Qos,
    error: *mut *mut c_char,
) -> *mut Publisher {
    let (reliability, congestion) = (
        if qos.reliable {
            Reliability::Reliable
        } else {
            Reliability::BestEffort
        },
        if qos.congestion_control == BLOCK {
            CongestionControl::Block
        } else {
            CongestionControl::Drop
        },
    );
    let declared = session
        .session
        .declare_publisher(text(key).into_owned())
        .reliability(reliability)
        .congestion_control(congestion)
        .priority(Priority::try_from(qos.priority as u8).unwrap_or_default())
        .allowed_destination(Locality::Remote)
        .wait();
    value_or(declared, error).map_or(std::ptr::null_mut(), |publisher| {
        Box::into_raw(Box::new(Publisher {
            publisher,
            payload: None,
            pool: session.pool.clone(),
        }))
    })
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_delete_publisher(publisher: *mut Publisher) {
    drop(Box::from_raw(publisher));
}

#[no_mangle]
pub extern "C" fn k8sdds_zenoh_qos(publisher: &Publisher) -> Qos {
    Qos {
        reliable: publisher.publisher.reliability() == Reliability::Reliable,
        congestion_control: if publisher.blocks() { BLOCK } else { DROP },
        priority: publisher.publisher.priority() as i32,
    }
}

#[no_mangle]
pub unsafe extern "C" fn k8sdds_zenoh_put(
    publisher: &mut Publisher,
    head: *const u8,
    head_length: usize,
    payload: *const u8,
    payload_length: usize,
    place: i32,
    longest_wait_ns: i64,
) -> i32 {
    let head = std::slice::from_raw_parts(head, head_length);
    let payload = if payload_length == 0 {
        &[][..]
    } else {
        std::slice::from_raw_parts(payload, payload_length)
    };
    let sample = match place {
        ONE_PAYLOAD => publisher.shared(head, payload),
        SHARED_MEMORY => {
            let longest_wait = Duration::from_nanos(longest_wait_ns.max(0) as u64);
            match publisher.in_memory(head, payload, longest_wait) {
                Ok(sample) => sample,
                Err(outcome) => return outcome,
            }
        }
        _ => Publisher::copied(head, payload),
    };
    let put = publisher.publisher.put(sample).wait();
    put.map_or(FAILED, |()| OK)
}
