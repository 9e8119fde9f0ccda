//! Send samples with Zenoh itself, as a short program of a user does.
//!
//! Usage: zenoh-direct pub|sub|ping|pong ADDRESS BYTES WARMUP_S MEASURED_S [shared]
//!
//! `pub` and `ping` listen at ADDRESS, their own; `sub` and `pong` connect to it. The first byte of a sample is its
//! phase. With `shared`, all samples have one buffer; otherwise each is copied into a new one, as after serialization.

use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use zenoh::bytes::ZBytes;
use zenoh::pubsub::Publisher;
use zenoh::qos::{CongestionControl, Reliability};
use zenoh::{Session, Wait};

const PORT: u16 = 7447;
const WARM_UP: u8 = 0;
const MEASURED: u8 = 1;
const END: u8 = 2;

type Failure = Box<dyn std::error::Error + Send + Sync>;

struct Options {
    role: String,
    address: String,
    bytes: usize,
    warm_up: Duration,
    measured: Duration,
    shared: bool,
}

fn options() -> Result<Options, Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [role, address, bytes, warm_up, measured, rest @ ..] = given.as_slice() else {
        return Err("usage: zenoh-direct pub|sub|ping|pong ADDRESS BYTES WARMUP_S MEASURED_S [shared]".into());
    };
    Ok(Options {
        role: role.clone(),
        address: address.clone(),
        bytes: bytes.parse::<usize>()?.max(1),
        warm_up: Duration::from_secs_f64(warm_up.parse()?),
        measured: Duration::from_secs_f64(measured.parse()?),
        shared: rest.first().is_some_and(|word| word == "shared"),
    })
}

/// Signals the supervisor when to read its meters, as k8sdds-perftest does.
fn signal(phase: u8) {
    let Ok(fd) = std::env::var("K8SDDS_PHASE_FD").unwrap_or_default().parse() else { return };
    let mut pipe = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    let _ = pipe.write_all(&[phase]);
}

fn open(listens: bool, address: &str) -> Result<Session, Failure> {
    let endpoints = format!(r#"endpoints: ["tcp/{address}:{PORT}"]"#);
    let topology = if listens {
        format!("listen: {{{endpoints}}}")
    } else {
        format!("listen: {{endpoints: []}}, connect: {{{endpoints}, retry: {{period_init_ms: 100}}}}")
    };
    // Large samples would go through shared memory, as both participants are on one machine.
    let fixed =
        r#"mode: "peer", scouting: {multicast: {enabled: false}}, transport: {shared_memory: {enabled: false}}"#;
    let config = format!("{{{fixed}, {topology}}}");
    let config = zenoh::Config::from_json5(&config)?;
    zenoh::open(config).wait()
}

fn publisher(session: &Session, topic: &'static str) -> Result<Publisher<'static>, Failure> {
    let publisher = session
        .declare_publisher(topic)
        .reliability(Reliability::Reliable)
        .congestion_control(CongestionControl::Block)
        .wait()?;
    while !publisher.matching_status().wait()?.matching() {
        sleep(Duration::from_millis(10));
    }
    Ok(publisher)
}

/// Puts samples as fast as possible.
fn publish(session: &Session, options: &Options) -> Result<(), Failure> {
    let publisher = publisher(session, "direct/samples")?;
    let put = |phase: u8, length: Duration| -> Result<u64, Failure> {
        let sample = vec![phase; options.bytes];
        let buffer = ZBytes::from(sample.clone());
        let until = Instant::now() + length;
        let mut count = 0;
        while Instant::now() < until {
            publisher.put(if options.shared { buffer.clone() } else { sample.clone().into() }).wait()?;
            count += 1;
        }
        Ok(count)
    };
    put(WARM_UP, options.warm_up)?;
    signal(b'M');
    let begun = Instant::now();
    let count = put(MEASURED, options.measured)?;
    let took = begun.elapsed();
    signal(b'E');
    publisher.put(vec![END]).wait()?;
    println!(r#"{{"sent": {count}, "seconds": {}}}"#, took.as_secs_f64());
    // The subscriber ends when it has this sample; a session that is closed at once may lose it.
    sleep(Duration::from_millis(500));
    Ok(())
}

/// Counts the measured samples and times the first and the last of them.
fn subscribe(session: &Session) -> Result<(), Failure> {
    let (ended, end) = mpsc::channel();
    let (mut count, mut first, mut last) = (0u64, None, Instant::now());
    let subscriber = session
        .declare_subscriber("direct/samples")
        .callback_mut(move |sample| match sample.payload().to_bytes()[0] {
            MEASURED => {
                last = Instant::now();
                count += 1;
                first.get_or_insert_with(|| {
                    signal(b'M');
                    last
                });
            }
            END => {
                signal(b'E');
                let _ = ended.send((count, first.map_or(0.0, |first| (last - first).as_secs_f64())));
            }
            _ => {}
        })
        .wait()?;
    let (count, seconds) = end.recv()?;
    println!(r#"{{"received": {count}, "seconds": {seconds}}}"#);
    subscriber.undeclare().wait()
}

/// Sends a sample after the answer to the previous one, and prints percentiles of half of the round trip.
fn ping(session: &Session, options: &Options) -> Result<(), Failure> {
    let answers = session.declare_subscriber("direct/pong").wait()?;
    let publisher = publisher(session, "direct/ping")?;
    let sample = vec![MEASURED; options.bytes];
    let mut times = Vec::new();
    for (phase, length) in [(WARM_UP, options.warm_up), (MEASURED, options.measured)] {
        let until = Instant::now() + length;
        if phase == MEASURED {
            signal(b'M');
        }
        while Instant::now() < until {
            let begun = Instant::now();
            publisher.put(sample.clone()).wait()?;
            // Reads the answer in one piece: large ones arrive in several.
            std::hint::black_box(answers.recv()?.payload().to_bytes());
            if phase == MEASURED {
                times.push(begun.elapsed().as_nanos() as f64 / 2e3);
            }
        }
    }
    signal(b'E');
    publisher.put(vec![END]).wait()?;
    times.sort_by(f64::total_cmp);
    let percentile = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    println!(
        r#"{{"pings": {}, "p50": {}, "p90": {}, "p99": {}}}"#,
        times.len(),
        percentile(0.5),
        percentile(0.9),
        percentile(0.99)
    );
    sleep(Duration::from_millis(500));
    Ok(())
}

fn pong(session: &Session) -> Result<(), Failure> {
    let (ended, end) = mpsc::channel();
    let publisher = publisher(session, "direct/pong")?;
    let subscriber = session
        .declare_subscriber("direct/ping")
        .callback(move |sample| {
            let bytes = sample.payload().to_bytes();
            if bytes.len() == 1 && bytes[0] == END {
                let _ = ended.send(());
            } else {
                // An answer is a sample of its own.
                let _ = publisher.put(bytes.to_vec()).wait();
            }
        })
        .wait()?;
    end.recv()?;
    subscriber.undeclare().wait()
}

fn main() -> Result<(), Failure> {
    let options = options()?;
    let session = open(matches!(options.role.as_str(), "pub" | "ping"), &options.address)?;
    match options.role.as_str() {
        "pub" => publish(&session, &options)?,
        "sub" => subscribe(&session)?,
        "ping" => ping(&session, &options)?,
        "pong" => pong(&session)?,
        role => return Err(format!("unknown role {role}").into()),
    }
    session.close().wait()
}
